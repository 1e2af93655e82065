"""Nsight Compute: which counters answer a question, the command line that reads them, and what its CSV says."""
