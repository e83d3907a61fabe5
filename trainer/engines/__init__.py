"""What runs a step on devices, one folder a framework; everything around them knows none."""
