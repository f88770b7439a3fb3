"""
Gives mutated inputs to every reader, listener and loader; nothing but errors of mttp.errors may come of it.

    python tests/fuzzing --seconds 600            all targets, 600 seconds in all
    python tests/fuzzing gzip spec --inputs 9999  some targets, so many inputs each
    python tests/fuzzing --replay .fuzz/FILE      one input again
    python tests/fuzzing --list

An input may take a second of CPU time, and the process may grow by 1 GiB.
The inputs that fail are saved. Exits with 1 if there are any.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzzing.parent import main

sys.exit(main(__doc__))
