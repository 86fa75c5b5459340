"""When a test calls something hung. Nobody asserts how fast things are: machines are slow, busy, or have one core.

PIPER_SLACK=10 asserts it by hand, on a quiet machine.
"""
import os

SLACK = float(os.environ.get("PIPER_SLACK", 300))  # seconds that something may end later than its own limit
STARTING = 600  # seconds until a job runs
