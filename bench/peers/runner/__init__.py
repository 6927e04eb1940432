"""What bench/peers/run is made of: see ../README.md."""
