"""Files and object stores: paths, atomic writes, locks, checksums, decompression, free space and cached copies."""
