"""The modules of bench/peers/run: see ../README.md."""
