"""`python -m ductord.cli` is `ductor`."""

from ductord.cli import main

main()
