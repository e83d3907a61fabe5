"""What people who do this job ran into, each with a small input of our own: named for the situation, seen at the surface."""
