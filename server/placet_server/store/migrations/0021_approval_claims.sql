-- expand
--
-- Who says that he is looking at an approval, and until when. It keeps nobody from deciding: no vote asks for it.
alter table approvals
    add column claimed_by text,
    add column claim_expire_time timestamptz,
    add constraint approvals_claim check (num_nulls(claimed_by, claim_expire_time) in (0, 2));
