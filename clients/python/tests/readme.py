"""The Python examples of README.md, in their order."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def examples() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README.read_text(), flags=re.DOTALL | re.MULTILINE)
