"""`placet dev` and `placet serve`: a server in this process, or several below it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from placet_server.cli.complaint import Complaint, server_extras, store_away
from placet_server.cli.exit_code import ExitCode
from placet_server.cli.option import Json
from placet_server.cli.output import print_line, say

if TYPE_CHECKING:
    from placet_server.app import PlacetServer
    from placet_server.parent.parent import ReadyParent

SAMPLE_APPS = ("placet.sample.shop:app", "placet.sample.agent:app")
SAMPLE_MODEL_VARIABLE = "PLACET_SAMPLE_MODEL"
LOCAL_MODEL = "local:placet-local"
DEV_PORT = 7433
DEV_HEALTH_PORT = 7434
SAMPLE_COMMAND = """placet call orders.lookup '{"order": "A-1001"}'"""

Processes = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=64,
        help="Server processes with one parent, all on these ports. Default: 1.",
        show_default=False,
    ),
]
ReusePort = Annotated[
    bool | None,
    typer.Option("--reuse-port/--no-reuse-port", help="Share the main port.", show_default=False),
]
Migrate = Annotated[
    bool | None,
    typer.Option("--migrate/--no-migrate", help="At start: migrate, or only check.", show_default=False),
]


def dev(
    app: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:OBJECT",
            help="Apps to load; may be given again. Default: a sample shop, and an agent over it.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = DEV_PORT,
    health_port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Default: 7434, or any free one with --port 0.", show_default=False
        ),
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder of the embedded Postgres: what is stored stays.")] = Path(
        ".placet"
    ),
    processes: Processes = None,
    person: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:ROLE+ROLE]",
            help="Somebody else to act as, with a token file of its own; may be given again.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="KIND:MODEL",
            help="Model of the sample agent instead of the local one, such as openai:gpt-5-mini; its key is in the "
            "usual variable of its kind. Or a name of PLACET_MODEL_FILE.",
        ),
    ] = None,
    is_json: Json = False,
) -> int:
    """A server on this machine, durable in ./.placet.

    With an embedded Postgres, and a token file that the other commands find.

    To try what needs several people, name them: PLACET_TOKEN_FILE=.placet/token.anna acts as anna.

    \b
    Examples:
      placet dev
      placet dev --app shop:app
      placet dev --port 0 --data /tmp/shop
      placet dev --processes 2
      placet dev --person anna:finance --person ben:finance+approver
      placet dev --model openai:gpt-5-mini
    """
    apps = tuple(app or SAMPLE_APPS)
    fixed = _of_dev(apps, port, health_port, data) | {
        "processes": processes or 1,
        "models_allowed": _models_of_dev(model),
    }
    if person:
        fixed["dev_people"] = tuple(person)
    hint = SAMPLE_COMMAND if apps == SAMPLE_APPS else "placet capabilities"
    try:
        return _run(fixed, hint, is_json=is_json)
    except Complaint as error:
        if error.message.startswith("cannot listen on"):
            error.message += "; `--port 0` takes free ports"
        raise


def _of_dev(apps: tuple[str, ...], port: int, health_port: int | None, data: Path) -> dict[str, Any]:
    """Settings of a server on this machine, whatever the environment says."""
    free_if_port_is = 0 if port == 0 else DEV_HEALTH_PORT
    fixed: dict[str, Any] = {
        "dsn": "",
        "ephemeral": False,
        "data_dir": data,
        "app": apps,
        "identity_dev": True,
        "token_file": data / "token",
        "host": "127.0.0.1",
        "port": port,
        "health_host": "127.0.0.1",
        "health_port": free_if_port_is if health_port is None else health_port,
        "reflection": True,
    }
    if "PLACET_LOG_LEVEL" not in os.environ:
        fixed["log_level"] = "warning"
    return fixed


def _models_of_dev(model: str | None) -> tuple[str, ...]:
    """What agents may name, beside what a file says; the sample agent's is told it by the environment."""
    allowed = [word.strip() for word in os.environ.get("PLACET_MODELS_ALLOWED", "").split(",")]
    if model:
        os.environ[SAMPLE_MODEL_VARIABLE] = model
        allowed += [model] if ":" in model else []
    return tuple(dict.fromkeys(word for word in (*allowed, LOCAL_MODEL) if word))


def serve(
    app: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:OBJECT", help="Apps to load; may be given again."),
    ] = None,
    dsn: Annotated[str | None, typer.Option(help="Postgres 15+; better in $PLACET_DSN.")] = None,
    data: Annotated[Path | None, typer.Option(help="Instead: folder of an embedded Postgres.")] = None,
    host: Annotated[str | None, typer.Option(help="Address of the main port.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Main port; 0: any free one.")] = None,
    health_host: Annotated[str | None, typer.Option(help="Address of the health port.")] = None,
    health_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Health port; 0: any free one.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port of /metrics for Prometheus.")
    ] = None,
    reuse_port: ReusePort = None,
    processes: Processes = None,
    auto_migrate: Migrate = None,
    admit_apps: Annotated[
        bool | None,
        typer.Option(
            "--admit/--no-admit",
            help="Offer the apps to every tenant, or leave that to `app admit`.",
            show_default=False,
        ),
    ] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="List every PLACET_ variable, and end.")
    ] = False,
    until_stdin_ends: Annotated[bool, typer.Option("--until-stdin-ends", hidden=True)] = False,
    is_json: Json = False,
) -> int:
    """A server for production.

    It is set up by PLACET_ variables (--settings lists them); options here win over them.

    SIGTERM drains; a second one cancels what still runs. Without a store or an identity source it does not start.

    With --processes a parent starts that many servers on one port, starts again those that end, and its health port
    answers for all of them.

    \b
    Examples:
      PLACET_DSN=postgresql://placet@db/placet PLACET_IDENTITY_MTLS=true placet serve --app shop:app
      placet serve --port 7433 --health-port 7434 --no-migrate
      placet serve --processes 4 --app shop:app
      placet serve --settings
    """
    if settings:
        return _print_settings(is_json)
    given: dict[str, Any] = {
        "app": tuple(app) if app else None,
        "dsn": dsn,
        "data_dir": data,
        "host": host,
        "port": port,
        "health_host": health_host,
        "health_port": health_port,
        "metrics_port": metrics_port,
        "reuse_port": reuse_port,
        "processes": processes,
        "auto_migrate": auto_migrate,
        "admit_apps": admit_apps,
    }
    if until_stdin_ends:
        _end_with_stdin()
    return _run({name: value for name, value in given.items() if value is not None}, "", is_json=is_json)


def _run(overrides: dict[str, Any], hint: str, *, is_json: bool) -> int:
    with server_extras():
        from placet_server import app
        from placet_server.config import ConfigRefused, load_config
        from placet_server.model.errors import StoreUnavailable

    def ready(server: PlacetServer) -> None:
        document = {
            "target": server.target,
            "health_target": server.health_target,
            "boot_id": server.kernel.boot_id,
        }
        if is_json:
            print_line({"ready": document})
        else:
            say(f"ready on {server.target}" + (f"; try: {hint}" if hint else ""))

    def ready_parent(parent: ReadyParent) -> None:
        if is_json:
            processes = [{"pid": pid, "boot_id": boot_id} for pid, boot_id in parent.children]
            document = {
                "target": parent.target,
                "health_target": parent.health_target,
                "processes": processes,
            }
            print_line({"ready": document})
        else:
            count = len(parent.children)
            say(f"ready on {parent.target} with {count} processes" + (f"; try: {hint}" if hint else ""))

    try:
        config = load_config(**overrides)
        if config.processes > 1:
            from placet_server.parent import parent

            return parent.run(config, ready_parent)
        return app.run(config, ready)
    except ConfigRefused as error:
        raise Complaint(str(error), ExitCode.REFUSED, "CONFIG_REFUSED") from None
    except StoreUnavailable as error:
        raise store_away(error) from None


def _print_settings(is_json: bool) -> int:
    with server_extras():
        from placet_server.config import Config
    rows = [
        (f"PLACET_{name.upper()}", field.description or "", _default(field.default))
        for name, field in Config.model_fields.items()
    ]
    if is_json:
        from placet_server.cli.output import print_document

        print_document(
            {"settings": [{"variable": row[0], "description": row[1], "default": row[2]} for row in rows]}
        )
    else:
        from placet_server.cli.output import print_table

        print_table(("VARIABLE", "MEANING", "DEFAULT"), rows, empty="")
    return ExitCode.SUCCEEDED


def _default(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _end_with_stdin() -> None:
    """For a parent that may be killed: its end closes our stdin, and that ends us as SIGTERM would."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="placet-stdin", daemon=True).start()
