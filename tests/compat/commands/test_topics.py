"""`seqgate topics` against a gateway and against Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

from tests.compat.commands.conftest import Peer

Fresh = Callable[[str], str]


def test_the_life_of_a_topic(peer: Peer, fresh: Fresh) -> None:
    topic = fresh("orders")
    created = peer.run("topics", "create", topic, "--partitions", "3", "--set", "retention.ms=3600000")
    assert created.stdout == f"Topic {topic}: created (3 partitions).\n"
    listed = {row["topic"]: row for row in peer.json("topics", "list")["topics"]}[topic]
    (described,) = peer.json("topics", "describe", topic)["topics"]
    assert (listed["partitions"], listed["replication_factor"], listed["is_internal"]) == (3, 1, False)
    assert described["topic_id"] == listed["topic_id"]
    assert len(listed["topic_id"]) == 22
    assert described["configs"] == {"retention.ms": "3600000"}
    assert [
        (row["partition"], row["leader"], row["replicas"], row["in_sync_replicas"], row["log_end_offset"])
        for row in described["partitions"]
    ] == [(number, 1, [1], [1], 0) for number in range(3)]

    altered = ("--partitions", "4", "--set", "cleanup.policy=compact", "--unset", "retention.ms")
    assert "gets 4 partitions, now 3." in peer.run("topics", "alter", topic, *altered, code=1).stdout
    done = peer.run("topics", "alter", topic, *altered, "--yes").stdout
    assert done == f"Topic {topic}: altered (4 partitions).\n"
    (described,) = peer.json("topics", "describe", topic)["topics"]
    assert described["configs"] == {"cleanup.policy": "compact"}
    assert len(described["partitions"]) == 4

    assert peer.run("topics", "delete", topic, "--yes").stdout == f"Topic {topic}: deleted.\n"
    assert topic not in peer.run("topics", "list").stdout


def test_what_the_cluster_refuses_is_told_in_one_sentence(peer: Peer, fresh: Fresh) -> None:
    topic = fresh("refused")
    peer.run("topics", "create", topic, "--partitions", "2")
    again = peer.run("topics", "create", topic, code=1)
    assert (again.stdout, again.stderr) == (
        "",
        f"seqgate: topic {topic}: Topic '{topic}' already exists (TOPIC_ALREADY_EXISTS)\n",
    )
    fewer = peer.run("topics", "alter", topic, "--partitions", "1", code=1).stderr
    assert fewer == (
        f"seqgate: topic {topic}: The topic {topic} currently has 2 partition(s); 1 would not be an increase "
        "(INVALID_PARTITIONS)\n"
    )
    wrong = peer.run("topics", "alter", topic, "--set", "retention.ms=soon", code=1).stderr
    assert wrong == (
        f"seqgate: topic {topic}: Invalid value soon for configuration retention.ms: Not a number of type "
        "LONG (INVALID_CONFIG)\n"
    )
    assert peer.json("topics", "create", topic, code=1)["topics"][0]["outcome"] == "refused"
    assert (
        "INVALID_REPLICATION_FACTOR"
        in peer.run("topics", "create", fresh("replicas"), "--replication-factor", "3", code=1).stderr
    )


def test_one_refusal_does_not_keep_the_others_from_being_created(peer: Peer, fresh: Fresh) -> None:
    there, new = fresh("there"), fresh("new")
    peer.run("topics", "create", there)
    assert peer.run("topics", "create", there, new, code=1).stdout == f"Topic {new}: created (1 partition).\n"
    assert (
        peer.run("topics", "create", there, "--if-not-exists").stdout == f"Topic {there}: exists already.\n"
    )


def test_a_dry_run_creates_nothing(peer: Peer, fresh: Fresh) -> None:
    topic = fresh("dry")
    told = peer.run("topics", "create", topic, "--partitions", "2", "--dry-run").stdout
    assert told == f"Topic {topic}: would be created (2 partitions).\n"
    assert "INVALID_CONFIG" in peer.run("topics", "create", topic, "--dry-run", "--set", "a=b", code=1).stderr
    assert topic not in peer.run("topics", "list").stdout


def test_a_dry_run_alters_nothing_and_tells_what_would_be_refused(peer: Peer, fresh: Fresh) -> None:
    topic = fresh("dry")
    peer.run("topics", "create", topic, "--partitions", "2")
    alter = ("topics", "alter", topic, "--dry-run")
    told = peer.run(*alter, "--partitions", "3", "--set", "retention.ms=1000").stdout
    assert told == f"Topic {topic}: would be altered (3 partitions).\n"
    assert "INVALID_PARTITIONS" in peer.run(*alter, "--partitions", "1", code=1).stderr
    assert "INVALID_CONFIG" in peer.run(*alter, "--set", "retention.ms=abc", code=1).stderr
    described = peer.run("topics", "describe", topic).stdout
    assert "2 partitions" in described
    assert "retention.ms" not in described


def test_a_topic_that_does_not_exist(peer: Peer, fresh: Fresh) -> None:
    topic = fresh("invoices")
    peer.run("topics", "create", topic)
    wrong = topic.replace("invoices", "invioces")
    for command in (("describe",), ("alter", "--partitions", "3"), ("delete", "--yes"), ("delete",)):
        told = peer.run("topics", command[0], wrong, *command[1:], code=1)
        assert told.stderr == f"seqgate: there is no topic {wrong}; the nearest name is {topic}\n"


def test_a_deletion_is_asked_for(peer: Peer, fresh: Fresh) -> None:
    topic = fresh("kept")
    peer.run("topics", "create", topic, "--partitions", "2")
    unanswered = peer.run("topics", "delete", topic, code=1)
    assert "Nothing is changed" in unanswered.stdout
    assert peer.json("topics", "delete", topic)["topics"] == [
        {
            "topic": topic,
            "outcome": "would be deleted",
            "partitions": 2,
            "replication_factor": None,
            "error": None,
        }
    ]
    assert topic in peer.run("topics", "list").stdout
    assert f"Topic {topic}: deleted.\n" in peer.run("topics", "delete", topic, "--yes").stdout


def test_internal_topics_are_listed_when_asked_for(peer: Peer) -> None:
    peer.run("consume", "__consumer_offsets", code=None)
    shown = {row["topic"] for row in peer.json("topics", "list")["topics"]}
    everything = {row["topic"] for row in peer.json("topics", "list", "--internal")["topics"]}
    assert not any(topic.startswith("__") for topic in shown)
    assert shown <= everything
