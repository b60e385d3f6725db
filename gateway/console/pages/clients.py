"""The metrics that clients push (KIP-714), and the quotas that limit clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from seqgate.gateway.admin.metrics import MetricsPage, MetricsRequest
from seqgate.gateway.admin.quotas import QuotaRow, change_quotas, find_quotas
from seqgate.gateway.admin.remote.cluster import Cluster
from seqgate.gateway.admin.request import ControlError
from seqgate.gateway.admin.tables import shown
from seqgate.gateway.config.setting import parse_decimal
from seqgate.gateway.console.answer import Confirmation, PageAnswer, Redirect, View, address, page_of
from seqgate.gateway.console.asking.connections import Cache
from seqgate.gateway.console.metrics.history import Key
from seqgate.gateway.console.metrics.rates import (
    PREFIXES,
    FigureReader,
    PushingClient,
    clients_of,
    is_counter,
)
from seqgate.gateway.console.page import (
    Feed,
    Gathered,
    Get,
    NoGateways,
    Page,
    PageGroup,
    Post,
    Visit,
    above_form,
)

KEPT_S: Final = 3.0


class PushedMetrics(NamedTuple):
    """The metrics that clients have pushed; `texts` has them as Prometheus' text, by node id."""

    told: Gathered[MetricsPage]
    texts: Mapping[int, str]

    def clients(self) -> list[PushingClient]:
        """Return the clients of each gateway. One that has gone to another gateway is at both for a while."""
        return [
            client for node_id, text in self.texts.items() for client in clients_of(text, node_id).values()
        ]


_pushed: Final[Cache[PushedMetrics]] = Cache(KEPT_S)


def clients(visit: Visit) -> PageAnswer:
    wanted = visit.text("filter").strip()
    try:
        pushed = _pushed_to(visit)
    except NoGateways:
        return View("clients.html", {"told": None})
    found = pushed.clients()
    rows = [row for row in found if any(wanted.lower() in value.lower() for value in row.labels.values())]
    rows.sort(key=lambda row: (row.labels.get("client_id", ""), row.instance_id, row.node_id))
    shown, paging = page_of(rows, visit.number("page", 1, 1))
    counts = Counter(row.instance_id for row in found)
    return View(
        "clients.html",
        {
            "told": pushed.told,
            "rows": [(row, row.node_id if counts[row.instance_id] > 1 else None) for row in shown],
            "paging": paging,
            "wanted": wanted,
            "all_clients": len(found),
        },
    )


def _pushed_to(visit: Visit) -> PushedMetrics:
    """Return what clients have pushed; an answer that is a few seconds old counts. Raises ControlError."""
    return _pushed.get(visit.security, visit.console.options, lambda: _asked(visit))


def _asked(visit: Visit) -> PushedMetrics:
    texts: dict[int, str] = {}
    for prefix in PREFIXES:
        told = visit.ask_gateways(MetricsRequest(prefix))
        for gateway in (gateway for page in told.answers for gateway in page.gateways):
            texts[gateway.node_id] = f"{texts.get(gateway.node_id, '')}{gateway.text}\n"
    return PushedMetrics(told, texts)


def view(visit: Visit) -> PageAnswer:
    """Show the metrics of a client, and one of them over time."""
    instance_id, wanted = visit.text("instance"), visit.text("filter").strip()
    node_id = visit.optional_number("node", -1)
    pushed = _pushed_to(visit)
    client = next(
        (
            client
            for client in pushed.clients()
            if client.instance_id == instance_id and node_id in {None, client.node_id}
        ),
        None,
    )
    if client is None:
        raise ControlError(
            f"no client with the instance id {instance_id[:60]!r} pushes metrics now; open the list of "
            "clients again"
        )
    names = sorted({sample.name for sample in client.series})
    chosen = visit.text("metric")
    rows = sorted(
        (sample for sample in client.series if wanted.lower() in sample.name.lower()),
        key=lambda sample: (sample.name, sorted(sample.labels.items())),
    )
    shown, paging = page_of(rows, visit.number("page", 1, 1))
    return View(
        "client.html",
        {
            "client": client,
            "told": pushed.told,
            "rows": [(sample, client.own_labels(sample)) for sample in shown],
            "paging": paging,
            "wanted": wanted,
            "metric": chosen if chosen in names else "",
            "is_counter": is_counter(chosen),
            "feed": address("/api/clients/figures", instance=instance_id, metric=chosen, node=node_id),
            "query": {"instance": instance_id, "filter": wanted, "node": node_id},
        },
    )


def client_figures(visit: Visit) -> PageAnswer:
    """Return a metric of a client since a time; the sampler reads it while somebody looks. Where a client has
    gone to another gateway, its series at both are summed, unless the address names a node.
    """
    instance_id, metric = visit.text("instance"), visit.text("metric")
    node_id = visit.optional_number("node", -1)
    _pushed_to(visit)  # refuses a person without the right

    def read() -> Mapping[int, str]:
        texts = _asked(visit).texts
        return texts if node_id is None else {node_id: texts.get(node_id, "")}

    watches = visit.console.sampler.watches
    # the first look's reader goes on, with its login: with another one begins another
    name = f"client {visit.user!r} {hash(visit.security)} {instance_id!r} {node_id} {metric}"
    history = watches.history(name, FigureReader(read, instance_id, metric), keeps_reader=True)
    return visit.chart(history, {metric: Key(metric)})


# The client quotas: list, change, removal.

Entity = dict[str, str | None]

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_WORDS: Final = {USER: "user", CLIENT_ID: "client id", IP: "address"}
ANY: Final = "default"
"""The choice of a form that stands for all users, client ids or addresses without quotas of their own."""
NAMED: Final = "named"
QUOTAS: Final[Mapping[str, str]] = {
    "producer_byte_rate": "bytes that may be produced per second",
    "consumer_byte_rate": "bytes that may be consumed per second",
    "request_percentage": "percent of one thread's time for requests",
    "controller_mutation_rate": "partitions that may be created or deleted per second",
    "connection_creation_rate": "connections that may be opened per second",
}
"""The quotas, with what each limits. The last one is of addresses, the others are of users and client ids."""
_OF_ADDRESSES: Final = "connection_creation_rate"


def quotas(visit: Visit) -> PageAnswer:
    """Show the entities with quotas whose names contain the filter."""
    wanted = visit.text("filter").strip()
    with visit.cluster() as cluster:
        found = find_quotas(cluster, {})
    named = [(row, entity_words(row.entity)) for row in found]
    matching = [pair for pair in named if wanted.lower() in pair[1].lower()]
    rows, paging = page_of(matching, visit.number("page", 1, 1))
    return View(
        "quotas.html",
        {
            "rows": [(row, text, _form_fields(row.entity)) for row, text in rows],
            "paging": paging,
            "wanted": wanted,
            "all_entities": len(found),
            "value": value_text,
        },
    )


def entity_words(entity: Mapping[str, str | None]) -> str:
    """Return an entity in words: `user ann, every client id`."""
    return ", ".join(
        f"every other {_WORDS.get(kind, kind)}" if name is None else f"{_WORDS.get(kind, kind)} {shown(name)}"
        for kind, name in entity.items()
    )


def _form_fields(entity: Mapping[str, str | None]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for kind, name in entity.items():
        fields[f"{kind}-is"] = ANY if name is None else NAMED
        fields[kind] = name or ""
    return fields


def value_text(value: float) -> str:
    """Return a value without needless digits."""
    return f"{value:.15g}"


def edit_form(visit: Visit, problem: str | None = None) -> View:
    """Show the form with the present quotas of an entity, or an empty one."""
    now: Mapping[str, float] = {}
    try:
        entity = _entity(visit)
        with visit.cluster() as cluster:
            now = _now(cluster, entity)
    except ControlError as error:
        entity = {}
        problem = problem or (str(error) if visit.form else None)
    values = {
        "kinds": [(kind, _WORDS[kind]) for kind in (USER, CLIENT_ID, IP)],
        "given": {kind: visit.text(kind) for kind in _WORDS},
        "choices": {kind: visit.text(f"{kind}-is", NAMED if visit.text(kind) else "") for kind in _WORDS},
        "entity": entity_words(entity),
        "quotas": QUOTAS,
        "of_addresses": _OF_ADDRESSES,
        "values": {
            quota: visit.text(quota, value_text(now[quota]) if quota in now else "") for quota in QUOTAS
        },
        "problem": problem,
    }
    return View("quota_edit.html", values, 200 if problem is None else 400)


def _entity(visit: Visit) -> Entity:
    entity: Entity = {}
    for kind, word in _WORDS.items():
        choice, name = visit.text(f"{kind}-is"), visit.text(kind)
        if choice == ANY:
            entity[kind] = None
        elif choice == NAMED:
            if not name:
                raise ControlError(f"the name of the {word} is empty; give a name")
            entity[kind] = name
    if not entity:
        raise ControlError("nothing is chosen that gets quotas; choose a user, a client id or an address")
    if IP in entity and len(entity) > 1:
        raise ControlError("an address has quotas of its own; choose no user or client id with it")
    return entity


def _now(cluster: Cluster, entity: Entity) -> Mapping[str, float]:
    rows: list[QuotaRow] = find_quotas(cluster, entity)
    return next((row.quotas for row in rows if row.entity == entity), {})


@above_form(edit_form)
def edit(visit: Visit) -> PageAnswer:
    """Set and remove quotas of an entity after a confirmation."""
    entity = _entity(visit)
    with visit.cluster() as cluster:
        wanted = _wanted(visit, is_address=IP in entity)
        now = _now(cluster, entity)
        new = {quota: value for quota, value in wanted.items() if now.get(quota) != value}
        gone = [quota for quota in now if quota in QUOTAS and quota not in wanted]
        if not new and not gone:
            raise ControlError("the form changes nothing; give another value, or cancel")
        if not visit.is_confirmed:
            return _question(entity, now, new, gone)
        _change(cluster, entity, new, gone)
    return Redirect("/access/quotas", notice=f"The quotas of {entity_words(entity)} are changed.")


def _change(cluster: Cluster, entity: Entity, new: Mapping[str, float], gone: Sequence[str]) -> None:
    refused = change_quotas(cluster, entity, new, gone)
    if refused is not None:
        raise ControlError(refused)


def _question(
    entity: Entity, now: Mapping[str, float], new: Mapping[str, float], gone: Sequence[str]
) -> PageAnswer:
    changes = [
        (quota, value_text(now[quota]) if quota in now else "no limit", value_text(value))
        for quota, value in new.items()
    ]
    return Confirmation(
        title=f"Change the quotas of {entity_words(entity)}?",
        action="Change the quotas",
        back=address("/access/quotas/edit", **_form_fields(entity)),
        sentences=("A client over its quota waits longer for each answer; nothing is refused or lost.",),
        changes=[*changes, *((quota, value_text(now[quota]), "no limit") for quota in gone)],
    )


def _wanted(visit: Visit, *, is_address: bool) -> dict[str, float]:
    """Return the quotas of the form that are not empty. Raises ControlError."""
    wanted: dict[str, float] = {}
    for quota in QUOTAS:
        text = visit.text(quota).strip()
        if not text:
            continue
        if (quota == _OF_ADDRESSES) is not is_address:
            owner = "an address" if quota == _OF_ADDRESSES else "users and client ids"
            raise ControlError(f"{quota} is a quota of {owner}; leave it empty here")
        try:
            wanted[quota] = parse_decimal(text)
        except ValueError:
            raise ControlError(f"{quota} must be a number, not {text[:40]!r}") from None
    return wanted


def remove_quotas(visit: Visit) -> PageAnswer:
    entity = _entity(visit)
    with visit.cluster() as cluster:
        now = _now(cluster, entity)
        if not visit.is_confirmed:
            return Confirmation(
                title=f"Remove the quotas of {entity_words(entity)}?",
                action="Remove the quotas",
                back="/access/quotas",
                changes=[(quota, value_text(value), "no limit") for quota, value in now.items()],
                is_danger=True,
            )
        if now:
            _change(cluster, entity, {}, list(now))
    return Redirect("/access/quotas", notice=f"The quotas of {entity_words(entity)} are removed.")


CLIENTS_PAGE: Final = Page(
    "Client metrics",
    PageGroup.CLIENTS,
    "m",
    Get("/clients", clients, waits_for="the metrics that clients have pushed"),
    Get("/clients/view", view, waits_for="the metrics that clients have pushed"),
    Feed("/api/clients/figures", client_figures),
)


QUOTAS_PAGE: Final = Page(
    "Quotas",
    PageGroup.ACCESS,
    "q",
    Get("/access/quotas", quotas, waits_for="the list of quotas"),
    Get("/access/quotas/edit", edit_form, waits_for="the present quotas"),
    Post("/access/quotas/edit", edit),
    Post("/access/quotas/remove", remove_quotas),
)
