"""What can be wrong with a record: the numbers with which kernels answer, in place of exceptions.

Apart from the kernels, so that the code that puts faults into words need not import numba. `records.faults` has the words.
"""

TRUNCATED, LEFT_OVER, LENGTH_CHECKSUM, DATA_CHECKSUM = -1, -2, -3, -4
"""Of a frame: the file ends inside it; too few bytes for one are left; one of its two checksums is wrong."""
MALFORMED, MISSING, TWICE = -5, -6, -7
"""Of a record: no such protobuf message; a feature is not there, or there more than once."""
WRONG_TYPE, WRONG_COUNT, OUT_OF_RANGE, BEYOND_MODEL = -8, -9, -10, -11
"""Of a feature: a list of another type; fewer or more values than the first record has; a number that no int32 holds;
one that a model cannot take."""

PROBLEM_SIZE = 4
ROW, FEATURE, FOUND, EXPECTED = range(PROBLEM_SIZE)
"""What a kernel notes beside the fault: the how-manieth record asked for, the feature, what is there and what should be."""
NOTES_SIZE = PROBLEM_SIZE + 3 * 7
"""Room for that, and behind it for where each of the seven features is."""
