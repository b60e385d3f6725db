"""UpdateFeatures (key 57, versions 0-2): set the levels of features. A level can't change: each feature has
the level of this release. Rights: `ALTER` on the cluster.

    level                               answer
    the present one                     accepted; from v1 on the upgrade type must be 1, 2 or 3
    any, with another upgrade type      INVALID_UPDATE_VERSION from v1 on, also for the present level
    a lower one, also as a downgrade    INVALID_UPDATE_VERSION; Kafka takes a downgrade that says it is one
    any other, or an unknown feature    INVALID_UPDATE_VERSION
    any, without ALTER on the cluster   CLUSTER_AUTHORIZATION_FAILED

The first wrong update refuses the whole request. Source: Kafka's FeatureControlManager.updateFeatures.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from seqgate.gateway.handlers.admin.api_versions import FEATURES
from seqgate.gateway.handlers.answering import api
from seqgate.gateway.handlers.answering.api import Api, RequestContext
from seqgate.gateway.handlers.answering.rights import cluster_refusal
from seqgate.gateway.metadata.decision import ApiError, told
from seqgate.gateway.runtime.services import NodeServices
from seqgate.gateway.security.acls.access import Operation

_UPGRADE_TYPES: Final = (1, 2, 3)
_PREFIX: Final = "The update failed for all features since the following feature had an error: "


async def handle(context: RequestContext[NodeServices], request: Any) -> Any:
    """Accept updates that change nothing; refuse the request at the first other update."""
    complaints = (_complaint(context.api_version, update) for update in request.feature_updates)
    error = cluster_refusal(context, Operation.ALTER)
    if error is None and (complaint := next(filter(None, complaints), None)):
        error = ApiError(ErrorCode.invalid_update_version, _PREFIX + complaint)
    results = [
        {"feature": update.feature, "error_code": ErrorCode.none, "error_message": "NONE"}
        for update in (() if error else request.feature_updates)
    ]
    return context.answer(**told(error), results=results)


def _complaint(version: int, update: Any) -> str | None:
    """Return why the update is refused; None when the feature has this level."""
    wanted, supported = update.max_version_level, FEATURES.get(update.feature)
    beginning = f"Invalid update version {wanted} for feature {update.feature}. "
    if supported is None:
        return f"{beginning}Seqgate does not support this feature."
    if version >= 1 and update.upgrade_type not in _UPGRADE_TYPES:
        return f"{beginning}Upgrade type {update.upgrade_type} is unknown; it must be 1, 2 or 3."
    if wanted < 0:
        return f"{beginning}A feature version cannot be less than 0."
    if wanted != supported:
        return (
            f"{beginning}Seqgate runs this feature at version {supported} only, and can't change the version."
        )
    return None


API = Api(key=57, versions=(0, 2), reaches=api.node, handle=handle)
