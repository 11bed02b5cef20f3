"""`python -m epochcast`: the command without an installed entry point, such as from a checkout."""

from epochcast.command import main

if __name__ == "__main__":
    main()
