"""`placet app`: check an app, and admit its manifest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.complaint import Complaint, server_extras
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import AppReference, Json, Target
from placet_server.cli.output import counted, print_document, say, warn

if TYPE_CHECKING:
    from placet import App
    from placet_server.model.manifest import Problem

commands = typer.Typer(
    help="""Check an app, and admit its manifest.

    \b
    Examples:
      placet app check --app shop:app
      placet app admit --app shop:app --validate-only
    """,
    no_args_is_help=True,
    rich_markup_mode=None,
)


@commands.command()
def check(app: AppReference, is_json: Json = False) -> int:
    """Every problem of an app's manifest at once, without a server.

    \b
    Examples:
      placet app check --app shop:app
      placet app check --app shop:app --json | jq .problems
    """
    loaded = load(app)
    problems = _check(loaded)
    refused = any(not problem.warning for problem in problems)
    documents = [
        {
            "path": problem.path,
            "code": problem.code,
            "message": problem.message,
            "warning": problem.warning,
        }
        for problem in problems
    ]
    _report(loaded.name, documents, is_json=is_json, more={"ok": not refused})
    if not is_json and not refused:
        agents = f" and {counted(len(loaded.agents), 'agent')}" if loaded.agents else ""
        say(f"app {loaded.name}: {counted(len(loaded.tools), 'tool')}{agents}, nothing that would refuse it")
    return ExitCode.REFUSED if refused else ExitCode.SUCCEEDED


@commands.command()
def admit(
    app: AppReference,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Report every problem and change nothing.")
    ] = False,
    connector: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where `placet connect` serves it. Default: in the server.",
            show_default=False,
        ),
    ] = None,
    connector_name: Annotated[
        str, typer.Option(help="The name in its certificate, if that is not the host.", show_default=False)
    ] = "",
    connector_plaintext: Annotated[
        bool, typer.Option("--connector-plaintext", help="Without TLS beyond loopback, for a mesh.")
    ] = False,
    expected_digest: Annotated[
        str, typer.Option(metavar="HEX", help="Only if this manifest is the one that is replaced.")
    ] = "",
    target: Target = None,
    is_json: Json = False,
) -> int:
    """Admit an app's manifest to the catalogue, whole or not at all.

    Where policies ask for it somebody else has to say yes first; the same command meets it again then.

    \b
    Examples:
      placet app admit --app shop:app --validate-only
      placet app admit --app shop:app
      placet app admit --app shop:app --connector 127.0.0.1:7435
      placet app admit --app shop:app --expected-digest "$DIGEST" --json
    """
    from placet import Connector
    from placet_server.cli.document import document_of
    from placet_server.cli.session import connect

    loaded = load(app)
    where = None
    if connector is not None:
        where = Connector(
            connector, tls_server_name=connector_name, plaintext=True if connector_plaintext else None
        )
    with connect(target) as client:
        answer = client.admit(
            loaded, connector=where, validate_only=validate_only, expected_digest=expected_digest
        )
    document = document_of(answer)
    refused = any(not problem["warning"] for problem in document["problems"])
    more = {"digest": document["digest"], "changed": document["changed"], "ok": not refused}
    _report(loaded.name, document["problems"], is_json=is_json, more=more)
    if not is_json and not refused:
        ended = "would be admitted" if validate_only else "admitted"
        unchanged = "" if answer.changed or validate_only else ", and was there already"
        say(f"manifest {loaded.name} {ended}{unchanged}, digest {answer.digest}")
    return ExitCode.REFUSED if refused else ExitCode.SUCCEEDED


def load(reference: str) -> App:
    """Raises Complaint."""
    from placet.app import load_app
    from placet.failure import DeclarationError

    try:
        return load_app(reference)
    except DeclarationError as error:
        raise Complaint(str(error), ExitCode.REFUSED, "DECLARATION") from None
    except Exception as error:
        # The author's module is at fault, and its traceback is what the author needs.
        import traceback

        shown = "".join(traceback.format_exception(error)).rstrip()
        raise Complaint(
            f"{reference} cannot be imported\n{shown}", ExitCode.REFUSED, "IMPORT_FAILED"
        ) from None


def _check(app: App) -> list[Problem]:
    with server_extras():
        from placet_server.core.admission.manifest import Known, check_manifest
        from placet_server.core.admission.manifest_agent import Around
        from placet_server.core.execution.handlers import HandlerTable
        from placet_server.model.errors import MalformedRequest
        from placet_server.model.manifest import Problem
        from placet_server.rpc.convert.capability import manifest_of

    try:
        manifest = manifest_of(app.manifest())
    except MalformedRequest as error:
        return [
            Problem(path=each.field, code=each.rule, message=each.description) for each in error.violations
        ]
    known = Known(digests={}, owners={}, around=Around(may_be_elsewhere=True))
    return check_manifest(manifest, known=known, handlers=HandlerTable(app.tools).claims())


def _report(name: str, problems: list[dict[str, Any]], *, is_json: bool, more: dict[str, Any]) -> None:
    if is_json:
        print_document({"manifest": name, **more, "problems": problems})
        return
    for problem in problems:
        word = "warning" if problem["warning"] else "problem"
        warn(f"{word}  {problem['path']}  {problem['code']}: {problem['message']}")
