"""`python -m mttp.encoding`: the helper, which works until whoever started it is gone."""

from __future__ import annotations

from mttp.encoding.helper import serve
from mttp.encoding.works import WORKS

if __name__ == "__main__":
    serve(WORKS)
