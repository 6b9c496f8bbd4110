"""The first policies are put in force by whoever holds the file of a server, once, and by nobody else."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from placet_server.core.admission.policy_set import ADMIT_POLICY_SET
from placet_server.core.governance.tools import ROLL_BACK_POLICY_SET
from placet_server.core.kernel import Kernel
from placet_server.model.caller import Caller
from placet_server.model.document import written
from placet_server.model.errors import ScopeMissing, StaleDigest, Unauthenticated
from placet_server.rpc.identity.bootstrap import TOKEN_PREFIX, BootstrapTokens, write_bootstrap_token
from tests.core import policies
from tests.core.governance import ask, base
from tests.core.kernels import open_kernel, run
from tests.postgres import Database

ANY = "permit (principal, action, resource);"


@pytest.fixture
async def kernel(database: Database) -> AsyncIterator[Kernel]:
    async with open_kernel(database.dsn, base()) as opened:
        yield opened


async def write(kernel: Kernel, path: Path) -> bool:
    journal = kernel.journal
    return await write_bootstrap_token(journal.pool, journal.clock, path, target="t", health_target="h")


def token_in(path: Path) -> str:
    return str(json.loads(path.read_text())["token"])


async def who(kernel: Kernel, token: str) -> Caller:
    found = await BootstrapTokens(kernel.journal.pool, kernel.journal.clock).establish(token)
    assert found is not None
    return found.caller


async def admit(kernel: Kernel, caller: Caller, name: str = "first") -> None:
    document = written(policies.set_of(ANY, name=name))
    await ask(kernel, ADMIT_POLICY_SET, {"policy_set": document}, caller=caller)


async def test_it_is_good_for_one_set_and_once(kernel: Kernel, tmp_path: Path) -> None:
    assert await write(kernel, tmp_path / "token")
    assert 0o600 == (tmp_path / "token").stat().st_mode & 0o777
    token = token_in(tmp_path / "token")
    caller = await who(kernel, token)
    with pytest.raises(ScopeMissing):
        await run(kernel, "placet.catalog.withdraw", {"name": "base.echo"}, caller=caller)
    await admit(kernel, caller)
    assert 1 == (await policies.sets_of(kernel).get("-")).revision
    with pytest.raises(Unauthenticated):
        await who(kernel, token)
    with pytest.raises(Unauthenticated):
        await admit(kernel, caller, name="second")
    with pytest.raises(ScopeMissing):
        await ask(kernel, ROLL_BACK_POLICY_SET, {"revision": 1}, caller=caller)
    assert 1 == (await policies.sets_of(kernel).get("-")).revision
    assert not await write(kernel, tmp_path / "later")


async def test_of_two_servers_tokens_at_once_one_is_good(kernel: Kernel, tmp_path: Path) -> None:
    callers = []
    for name in ("one", "two"):
        assert await write(kernel, tmp_path / name)
        callers.append(await who(kernel, token_in(tmp_path / name)))
    both = await asyncio.gather(
        *(admit(kernel, caller, name) for caller, name in zip(callers, ("first", "other"), strict=True)),
        return_exceptions=True,
    )
    assert 1 == sum(each is None for each in both)
    assert all(each is None or isinstance(each, Unauthenticated | StaleDigest) for each in both)
    assert 1 == (await policies.sets_of(kernel).get("-")).revision
    for name in ("one", "two"):
        with pytest.raises(Unauthenticated):
            await who(kernel, token_in(tmp_path / name))


async def test_it_replaces_no_policies_that_somebody_else_has_put_in_force(
    kernel: Kernel, tmp_path: Path
) -> None:
    await write(kernel, tmp_path / "token")
    token = token_in(tmp_path / "token")
    caller = await who(kernel, token)
    document = written(policies.set_of(ANY))
    await ask(kernel, ADMIT_POLICY_SET, {"policy_set": document, "tenant": "-"})
    with pytest.raises(Unauthenticated):
        await who(kernel, token)
    with pytest.raises(Unauthenticated):
        await admit(kernel, caller, name="mine")
    assert 1 == (await policies.sets_of(kernel).get("-")).revision


async def test_another_stores_token_and_an_old_one_are_nobodys(kernel: Kernel, tmp_path: Path) -> None:
    with pytest.raises(Unauthenticated):
        await who(kernel, TOKEN_PREFIX + "somebody-elses")
    await write(kernel, tmp_path / "token")
    async with kernel.journal.pool.connection() as connection:
        await connection.execute("update bootstrap_tokens set expire_time = now()")
    with pytest.raises(Unauthenticated):
        await who(kernel, token_in(tmp_path / "token"))
