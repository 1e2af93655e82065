"""The questions that `lowlevel profile --what` answers, each with its counters and a word on what they mean.

Names are Nsight Compute's for compute capability 7.5 and newer; one that a GPU does not have is left out of the
request when ncu refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Counter:
    """One line of a summary. `metrics` are what it is computed from, by `value` (default: the one metric).

    unit: of the shown value, after `scale`. meaning: one short phrase.
    """

    title: str
    metrics: tuple[str, ...]
    unit: str
    meaning: str
    scale: float = 1.0
    value: Callable[..., float | None] | None = None


def _per(total: float, count: float) -> float | None:
    return total / count if count else None


def _sum(*values: float) -> float:
    return sum(values)


_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_SHARED = "smsp__sass_inst_executed_op_shared_{}.sum"
_SECTORS = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"

_DURATION = Counter("duration", ("gpu__time_duration.sum",), "us", "of this one launch, at the clock as it is", 1e-3)
_SM = Counter(
    "SM throughput",
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "%",
    "of its peak, the busiest of the SM's pipes",
)
_MEMORY = Counter(
    "memory throughput",
    ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",),
    "%",
    "of its peak, the busiest of L1, L2 and DRAM",
)
_DRAM = Counter(
    "DRAM throughput", ("dram__throughput.avg.pct_of_peak_sustained_elapsed",), "%", "of the device memory's peak"
)
_OCCUPANCY = Counter(
    "occupancy",
    ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "%",
    "warps resident, of those an SM can hold",
)
_REGISTERS = Counter("registers", ("launch__registers_per_thread",), "a thread", "of 65536 on an SM")
_L1 = Counter("L1 hit rate", ("l1tex__t_sector_hit_rate.pct",), "%", "sectors found in L1; TMA passes it by")
_L2 = Counter("L2 hit rate", ("lts__t_sector_hit_rate.pct",), "%", "sectors found in L2, not fetched from DRAM")
_ISSUE = Counter(
    "issue slots used",
    ("smsp__issue_active.avg.pct_of_peak_sustained_active",),
    "%",
    "cycles in which a scheduler issued an instruction",
)

_LOAD_CONFLICTS = Counter(
    "load conflicts a request",
    (_CONFLICTS.format("ld"), _SHARED.format("ld")),
    "",
    "extra passes of a shared load; 0 is ideal",
    value=_per,
)
_STORE_CONFLICTS = Counter(
    "store conflicts a request",
    (_CONFLICTS.format("st"), _SHARED.format("st")),
    "",
    "extra passes of a shared store; 0 is ideal",
    value=_per,
)

#: Why a warp did not issue: the hardware's word -> what it waited for.
STALLS = {
    "barrier": "for the other warps at bar.sync",
    "branch_resolving": "for a branch's target",
    "dispatch_stall": "for the dispatcher, held by a conflict of resources",
    "drain": "for its stores to leave, at its end",
    "gmma": "for wgmma's registers or its arrival",
    "imc_miss": "for a constant, missed in its cache",
    "lg_throttle": "for room in the queue of global and local accesses: too many of them",
    "long_scoreboard": "for data from L2 or DRAM",
    "math_pipe_throttle": "for a busy arithmetic pipe: good, if it is the one that counts",
    "membar": "for a memory fence",
    "mio_throttle": "for room in the queue of shared memory and special functions",
    "misc": "for something else",
    "no_instruction": "for its next instruction to be fetched",
    "not_selected": "for nothing: another warp was chosen",
    "selected": "for nothing: it issued",
    "short_scoreboard": "for data from shared memory or the special functions",
    "sleeping": "in nanosleep",
    "tex_throttle": "for room in the texture queue",
    "wait": "a fixed latency, of the instruction before",
}
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
#: What is no stall, and has no place among the reasons for one.
NO_STALL = ("selected", "not_selected")


def stall_metric(reason: str) -> str:
    """Warps that were stalled for the reason, on average, at each instruction issued."""
    return _STALL.format(reason)


def stalls_of(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    """(reason, warps) of the reasons to stall that were measured, the most first."""
    found = [(r, metrics[stall_metric(r)]) for r in STALLS if r not in NO_STALL and stall_metric(r) in metrics]
    return sorted(found, key=lambda item: -item[1])


@dataclass(frozen=True)
class Question:
    """What `--what` offers: the lines of its summary, and whether the reasons to stall are among them."""

    text: str
    counters: tuple[Counter, ...]
    stalls: bool = False

    @property
    def metrics(self) -> tuple[str, ...]:
        """Every counter to be read, once."""
        names = [m for counter in self.counters for m in counter.metrics]
        names += map(stall_metric, STALLS) if self.stalls else ()
        return tuple(dict.fromkeys(names))


QUESTIONS: dict[str, Question] = {
    "overview": Question(
        "is it bound by arithmetic, by memory, or by waiting?",
        (_DURATION, _SM, _MEMORY, _DRAM, _OCCUPANCY, _REGISTERS, _L1, _L2, _LOAD_CONFLICTS, _STORE_CONFLICTS),
        stalls=True,
    ),
    "memory": Question(
        "what moves between DRAM, L2 and the SMs, and in pieces of which size?",
        (
            _DURATION,
            _DRAM,
            Counter("DRAM read", ("dram__bytes_read.sum",), "MB", "beyond each input once: read again", 1e-6),
            Counter("DRAM written", ("dram__bytes_write.sum",), "MB", "beyond the output once: evicted early", 1e-6),
            Counter("L2 throughput", ("lts__throughput.avg.pct_of_peak_sustained_elapsed",), "%", "of its peak"),
            Counter("L1 throughput", ("l1tex__throughput.avg.pct_of_peak_sustained_elapsed",), "%", "of its peak"),
            _L1,
            _L2,
            Counter(
                "sectors a load",
                (_SECTORS.format("sectors", "ld"), _SECTORS.format("requests", "ld")),
                "",
                "32 bytes each; 4 are ideal for 4 bytes a thread, 16 for 16",
                value=_per,
            ),
            Counter(
                "sectors a store",
                (_SECTORS.format("sectors", "st"), _SECTORS.format("requests", "st")),
                "",
                "32 bytes each; 4 are ideal for 4 bytes a thread, 16 for 16",
                value=_per,
            ),
        ),
    ),
    "shared": Question(
        "do shared-memory accesses conflict?",
        (
            _DURATION,
            Counter("loads", (_SHARED.format("ld"),), "", "shared-memory load instructions of warps"),
            Counter("stores", (_SHARED.format("st"),), "", "shared-memory store instructions of warps"),
            Counter("load conflicts", (_CONFLICTS.format("ld"),), "", "extra passes of loads"),
            Counter("store conflicts", (_CONFLICTS.format("st"),), "", "extra passes of stores"),
            Counter("copy conflicts", (_CONFLICTS.format("ldgsts"),), "", "extra passes of cp.async"),
            _LOAD_CONFLICTS,
            _STORE_CONFLICTS,
            Counter(
                "shared-memory bandwidth",
                ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",),
                "%",
                "passes of one 128-byte row, of one a cycle",
            ),
        ),
    ),
    "tensor": Question(
        "how busy are the tensor cores, and what else runs?",
        (
            _DURATION,
            _SM,
            Counter(
                "tensor pipe",
                ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",),
                "%",
                "cycles in which the tensor cores worked",
            ),
            Counter(
                "tensor instructions", ("sm__inst_executed_pipe_tensor.sum",), "", "mma and wgmma instructions of warps"
            ),
            Counter(
                "FMA pipe",
                ("sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",),
                "%",
                "cycles with fp32 arithmetic, the epilogue's too",
            ),
            Counter(
                "ALU pipe",
                ("sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",),
                "%",
                "cycles with integers and addresses",
            ),
            _ISSUE,
            Counter("instructions", ("smsp__inst_executed.sum",), "", "of all warps"),
            _OCCUPANCY,
            _REGISTERS,
        ),
    ),
    "stalls": Question(
        "what do the warps wait for?",
        (
            _DURATION,
            _ISSUE,
            _OCCUPANCY,
            Counter(
                "eligible warps",
                ("smsp__warps_eligible.avg.per_cycle_active",),
                "a cycle",
                "ready to issue in a scheduler; under 1 it idles",
            ),
        ),
        stalls=True,
    ),
}
