"""The commands, one file each: its options, the public function behind it, and what it prints."""
