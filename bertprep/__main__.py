"""`python -m bertprep` is `bertprep`."""

if __name__ == "__main__":
    try:
        from bertprep.cli import run

        run()
    except KeyboardInterrupt:  # while modules are loaded
        raise SystemExit(130) from None
