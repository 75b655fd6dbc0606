"""`python -m walktalk` is `walktalk`."""

from walktalk.cli import main

if __name__ == "__main__":
    main()
