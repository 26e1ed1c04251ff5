"""``python -m concur_proxy``."""

from concur_proxy.cli import main

if __name__ == "__main__":
    main()
