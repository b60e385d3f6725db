"""The kinds of runs, each of which a seed decides: a gateway on a local disk, one in a bucket, several
gateways, and share groups on one gateway or several.
"""

from __future__ import annotations

import enum
from dataclasses import replace

from tests.simulation.cluster.plan import cluster_plan_of, share_cluster_plan_of
from tests.simulation.cluster.profiles import cluster_profile_name_of
from tests.simulation.cluster.simulation import run_cluster_seed
from tests.simulation.plan import Plan, bucket_plan_of, plan_of, share_plan_of
from tests.simulation.profiles import (
    SHARES_IN_CLUSTER,
    bucket_profile_name_of,
    profile_name_of,
    share_profile_name_of,
)
from tests.simulation.running import Outcome
from tests.simulation.simulation import run_seed


class World(enum.Enum):
    """A kind of runs. The value is the option of `python -m tests.simulation`."""

    DISK = ""
    BUCKET = "bucket"
    CLUSTER = "cluster"
    SHARES = "shares"

    def run(self, seed: int, longest_s: float | None = None) -> Outcome:
        """Run a seed and judge its history, with at most `longest_s` for its clients."""
        outcome = self._run(seed, longest_s)
        outcome.option = f"--{self.value}" if self.value else ""
        return outcome

    def _run(self, seed: int, longest_s: float | None) -> Outcome:
        shares = self is World.SHARES
        if self is World.CLUSTER or (shares and share_profile_name_of(seed) == SHARES_IN_CLUSTER):
            plan = share_cluster_plan_of(seed) if shares else cluster_plan_of(seed)
            return run_cluster_seed(seed, replace(plan, shared=_shortened(plan.shared, longest_s)))
        plans = {World.BUCKET: bucket_plan_of, World.SHARES: share_plan_of}
        return run_seed(seed, _shortened(plans.get(self, plan_of)(seed), longest_s))

    def profile_name_of(self, seed: int) -> str:
        """Return the name of the profile that the seed draws; the empty name is the ordinary run's."""
        if self is World.CLUSTER:
            return cluster_profile_name_of(seed)
        names = {World.BUCKET: bucket_profile_name_of, World.SHARES: share_profile_name_of}
        return names.get(self, profile_name_of)(seed)


def _shortened(plan: Plan, longest_s: float | None) -> Plan:
    return plan if longest_s is None else replace(plan, duration_s=min(plan.duration_s, longest_s))
