"""How long a call takes, honestly: rotated data, interleaved rounds, paired ratios. docs/measuring.md says why."""

from lowlevel.measure.rounds import Measurement, Options, joined, measure_group

__all__ = ["Measurement", "Options", "joined", "measure_group"]
