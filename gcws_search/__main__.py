"""``python -m gcws_search``: the same as ``gcws-search``."""

from gcws_search.commands.app import main

if __name__ == "__main__":
    main()
