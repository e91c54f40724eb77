"""Policies for single decisions."""

from __future__ import annotations

import pytest

import levada


def test_every_policy_is_listed_and_decides():
    listed = levada.policies()
    assert {"adaptive", "fdr", "lard/r", "cap", "bounded_hash"} <= {p["name"] for p in listed}
    for described in listed:
        policy = levada.Policy(described["name"], nodes=4, seed=3)
        for number in range(100):
            pick = policy.pick(f"example.com/{number}", size=1000, now=number / 10)
            assert pick.node in policy.nodes
            policy.begin(pick.node)
        assert sum(policy.loads.values()) == 100
        assert all(parameter["help"] for parameter in described["parameters"])


def test_picks_follow_loads_and_health():
    policy = levada.Policy("least_conn", nodes=["a", "b", "c"])
    assert policy.pick("x", loads=[2, 1, 3]).node == "b"
    assert policy.pick("x", loads={"b": 5}).node == "a"
    policy.down("a")
    assert policy.pick("x").node == "c"
    policy.failed("c")
    policy.down("b")
    assert policy.pick("x") is None
    policy.up("a")
    assert policy.pick("x").node == "a"


def test_hash_orders_are_those_of_nodes():
    policy = levada.Policy("fdr", nodes=["a", "b", "c"], busy=10)
    order, responsible = policy.candidates("example.com/index.html")
    assert sorted(order) == ["a", "b", "c"] and responsible >= 1
    assert policy.pick("example.com/index.html").node in order[:responsible]
    assert policy.candidates(b"example.com/index.html") == (order, responsible)


def test_chance_repeats_with_its_seed():
    def nodes(seed: int) -> list[str]:
        policy = levada.Policy("random", nodes=8, seed=seed)
        return [policy.pick("x").node for _ in range(50)]

    assert nodes(1) == nodes(1) != nodes(2)


def test_service_times_are_learnt():
    policy = levada.Policy("peak_ewma", nodes=["near", "far"], seed=1)
    for number in range(50):
        pick = policy.pick("x", now=number)
        policy.observe(pick.node, 0.001 if pick.node == "near" else 1.0, now=number)
    picks = [policy.pick("x", now=50.0).node for _ in range(20)]
    assert picks.count("near") > 15


def test_mistakes_are_told():
    with pytest.raises(ValueError, match="there is no policy `fdrr`"):
        levada.Policy("fdrr")
    with pytest.raises(ValueError, match="has no parameter `bussy`; it has"):
        levada.Policy("fdr", bussy=3)
    with pytest.raises(ValueError, match="2 values for 3 nodes"):
        levada.Policy("fdr", nodes=3).pick("x", loads=[1, 2])
    with pytest.raises(KeyError, match='there is no node "z"'):
        levada.Policy("fdr", nodes=["a"]).begin("z")
    with pytest.raises(ValueError, match="there is no service class"):
        levada.Policy("cap").pick("x", service_class="slow")
    with pytest.raises(ValueError, match="weights must be above 0"):
        levada.Policy("fdr", nodes=2, weights=[0.0, 1.0])
    with pytest.raises(ValueError, match="a node at least"):
        levada.Policy("fdr", nodes=0)
