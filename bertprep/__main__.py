"""Runs the command `bertprep` for `python -m bertprep`."""

if __name__ == "__main__":
    try:
        from bertprep.cli import run

        run()
    except KeyboardInterrupt:  # while modules are being imported
        raise SystemExit(130) from None
