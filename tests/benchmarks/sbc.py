"""The long run of calibration by simulation: ``python tests/benchmarks/sbc.py [--fits 256] [--models full plain]``.

Prints pass or fail for SVI with its default guide and for NUTS, what wrong fits look like (all must be rejected), and a
table of the coverage of each guide. All checks that must pass share one false-alarm rate. About 10 minutes of one core
for SVI and its controls on both models with 256 fits; NUTS with echoes takes about 7 seconds a fit.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pandas as pd

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sbc_cases import FULL, PLAIN, biased, design

import nousppl as nous
from nousppl.inference import many
from nousppl.simulated_sets import Sets, draw_sets
from nousppl.simulation_calibration import SimulationBasedCalibration, evaluate, sample

RATE = 1e-3
MODELS = {"full": FULL, "plain": PLAIN}
SAMPLER = nous.NUTS(num_warmup=300, num_samples=800, num_chains=1, kernel={"target_accept_prob": 0.9})
GUIDES = {
    "default": nous.SVI(),
    "default, not weighed": nous.SVI(weighed=0),
    "top level only full": nous.SVI(full_size=9, weighed=0),
    "mean field": nous.SVI(guide="mean_field", weighed=0),
    "mean field, weighed": nous.SVI(guide="mean_field"),
}


def calibrate(sets: Sets, method: nous.SVI | nous.NUTS) -> SimulationBasedCalibration:
    """Fit and rank."""
    started = time.perf_counter()
    draws, record = sample(sets, method, many.AT_ONCE)
    found = evaluate(sets, draws, 1, 2, record)
    print(f"  {found!r}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def guides(sets: Sets) -> tuple[dict[str, SimulationBasedCalibration], pd.DataFrame]:
    """Each guide's calibration, and the share of true values in 90 % intervals by quantity and guide."""
    found = {name: calibrate(sets, method) for name, method in GUIDES.items()}
    return found, pd.DataFrame({name: one.coverage()[0.9] for name, one in found.items()})


def controls(model: str, sets: Sets, fits: int) -> dict[str, SimulationBasedCalibration]:
    """Fits that are wrong."""
    wrong = {"a biased likelihood": calibrate(biased(sets), nous.SVI())}
    if model == "full":
        echoes = draw_sets(FULL, PLAIN, design(), fits, 2, 0.5, "all")
        wrong["a forgotten origin"] = calibrate(echoes, nous.SVI())
    return wrong


def report(model: str, fits: int, chains: int, must_pass: int) -> bool:
    """Print everything on a model; whether all is as it has to be."""
    right, wrong, table = {}, {}, pd.DataFrame()
    if fits:
        sets = draw_sets(MODELS[model], MODELS[model], design(), fits, 1, 0.5, "all")
        found, table = guides(sets)
        wrong = {"the mean-field guide": found["mean field"], **controls(model, sets, fits)}
        right["SVI, default guide"] = found["default"]
    if chains:
        few = draw_sets(MODELS[model], MODELS[model], design(), chains, 1, 0.5, "all")
        right["NUTS"] = calibrate(few, SAMPLER)
    print(f"\n== {model} model ==")
    good = True
    for name, one in right.items():
        check = one.check(RATE / must_pass)
        good &= check.passed
        print(f"{name}: {'pass' if check.passed else 'FAIL'}: {check!r}")
        print(one.coverage().round(3).to_string(), one.truths().round(3).to_string(), sep="\n\n", end="\n\n")
    for name, one in wrong.items():
        check = one.check(RATE)
        good &= not check.passed
        print(f"{name}: {'NOT REJECTED' if check.passed else 'rejected'}: {check!r}")
    if fits:
        print(f"\nshare of true values in 90 % intervals, {fits} fits:\n{table.round(3).to_string()}")
    return good


def main() -> int:
    """Exit code 0 where everything is as it has to be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--fits", type=int, default=256, help="data sets for SVI and its controls; 0 leaves them out")
    parser.add_argument("--chains", type=int, default=128, help="data sets for NUTS; 0 leaves it out")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    given = parser.parse_args()
    must_pass = len(given.models) * (bool(given.fits) + bool(given.chains))
    if not must_pass:
        parser.error("--fits 0 --chains 0: nothing is left to be done")
    good = [report(model, given.fits, given.chains, must_pass) for model in given.models]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
