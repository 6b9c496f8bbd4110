-- expand
--
-- Questions to people beside approvals: what waits for an answer, and the answer.
alter table approvals drop constraint approvals_kind_check, add constraint approvals_kind_check check (kind in ('APPROVAL', 'INPUT'));
alter table approval_decisions
    add column answer text,
    drop constraint approval_decisions_verdict_check,
    add constraint approval_decisions_verdict_check check (verdict in ('APPROVE', 'DENY', 'ANSWER') and (verdict = 'ANSWER') = (answer is not null));
