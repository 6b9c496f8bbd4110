"""The policies of a tenant that has admitted none."""

from placet_server.model.policy import PolicySet

DEFAULT_POLICY_COUNT = 4
DEFAULT_SET = PolicySet(
    name="default",
    cedar="""\
@id("reads")
@description("What changes nothing is open to everybody of the tenant.")
permit (principal, action, resource)
when { resource.effect == "READ" };

@id("effects")
@description("What changes something, too, up to medium risk.")
permit (principal, action, resource)
when { resource.effect != "READ" && resource.risk <= 2 };

@id("risky-effects")
@description("Above medium risk somebody else has to say yes.")
@approval("1 of role:approver")
permit (principal, action, resource)
when { resource.effect != "READ" && resource.risk > 2 };

@id("weakenings")
@description("Taking back what a contract promised needs a second person.")
@approval("1 of role:approver")
permit (principal, action == Action::"placet.catalog.admit", resource)
when { context.input has weakenings && context.input.weakenings > 0 };
""",
)
