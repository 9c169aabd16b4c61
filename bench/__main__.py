"""`python -m bench [--quick] [--json FILE]`: fresh stacks, their figures against the promises, and next to them the limit and the floor program of
the same run.

Absolute figures move with the machine and its neighbours; quote the shares.
"""

import argparse
import asyncio
import json
from pathlib import Path

from bench.figures import FULL, QUICK, figures
from bench.table import table


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"fewer runs ({QUICK.memory_runs:,} for memory instead of {FULL.memory_runs:,}, a history of {QUICK.history:,} instead of {FULL.history:,}), "
        "under two minutes",
    )
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    found = {"quick": arguments.quick} | asyncio.run(figures(QUICK if arguments.quick else FULL))
    print(table(found))
    print(json.dumps(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
