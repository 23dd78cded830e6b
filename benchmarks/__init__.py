"""What Romanesco costs: ``python -m benchmarks [NAME ...] [--json FILE]``. See ``--help``; never timed in tests."""
