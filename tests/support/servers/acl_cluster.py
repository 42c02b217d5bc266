"""A cluster with an authorizer, on which a test forbids one thing at a time. It offers two-phase commit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from spark_eos.tools.devcluster import DevCluster
from tests.support.judges.kafka_view import TIMEOUT, KafkaView, open_view
from tests.support.servers.two_phase import TWO_PHASE
from tests.support.waiting import wait_for


class Guarded:
    """A cluster where everybody may do everything but what is forbidden."""

    def __init__(self, cluster: DevCluster, view: KafkaView) -> None:
        self.cluster, self.view = cluster, view

    @contextmanager
    def forbidden(self, kind: ResourceType, prefix: str, operation: AclOperation) -> Iterator[None]:
        """For names with this prefix; everything else stays allowed."""
        with self._rules(
            kind, prefix, (AclOperation.ALL, AclPermissionType.ALLOW), (operation, AclPermissionType.DENY)
        ):
            yield

    @contextmanager
    def only(self, kind: ResourceType, prefix: str, *operations: AclOperation) -> Iterator[None]:
        """No more than these, for names with this prefix; names without rules stay allowed."""
        with self._rules(kind, prefix, *((operation, AclPermissionType.ALLOW) for operation in operations)):
            yield

    @contextmanager
    def _rules(self, kind: ResourceType, prefix: str, *rules: tuple[AclOperation, AclPermissionType]) -> Iterator[None]:
        pattern = ResourcePatternType.LITERAL if kind is ResourceType.BROKER else ResourcePatternType.PREFIXED
        acls = [AclBinding(kind, prefix, pattern, "User:*", "*", *rule) for rule in rules]
        filters = [AclBindingFilter(kind, prefix, pattern, "User:*", "*", *rule) for rule in rules]
        for future in self.view.admin.create_acls(acls).values():
            future.result(TIMEOUT)
        try:
            self._wait_for(filters, 1)
            yield
        finally:
            for future in self.view.admin.delete_acls(filters).values():
                future.result(TIMEOUT)
            self._wait_for(filters, 0)

    def _wait_for(self, filters: list[AclBindingFilter], rules: int) -> None:
        """Until the broker, which learns of rules from the controller, goes by so many of each kind."""
        for wanted in filters:
            wait_for(
                lambda wanted=wanted: len(self.view.admin.describe_acls(wanted).result(TIMEOUT)) == rules,
                f"{rules} rule(s) like {wanted}",
            )

    @contextmanager
    def all_forbidden(self, operation: AclOperation, *of: tuple[ResourceType, str]) -> Iterator[None]:
        """The operation on each of these kinds and prefixes; the cluster itself is of the kind BROKER."""
        with ExitStack() as stack:
            for kind, prefix in of:
                stack.enter_context(self.forbidden(kind, prefix, operation))
            yield


@contextmanager
def guarded_cluster() -> Iterator[Guarded]:
    """The cluster, up until the end of the block."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    config = {
        "authorizer.class.name": authorizer,
        "allow.everyone.if.no.acl.found": "true",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    with DevCluster(config=config | TWO_PHASE) as cluster, open_view(cluster.bootstrap_servers) as view:
        yield Guarded(cluster, view)
