"""`python -m specdec_lib`: the specdec command where no script was installed.

Our own; the commands are in cli.py.
Left out: everything else.
"""

from specdec_lib.cli import main

if __name__ == "__main__":
    main()
