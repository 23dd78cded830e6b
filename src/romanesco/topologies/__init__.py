"""Ways of working on a task, each a package of its own. The runtime finds them by name; none imports another."""
