"""Ways to reach Romanesco from outside: the command line."""
