"""Third parties that are kept to certain rooms; the direction between our own rooms is import-linter's."""

from __future__ import annotations

from tests.house.source_tree import files, imported_modules, parse, python_files

SERVER = "server/placet_server/"
WIRE_ROOMS = ("rpc/", "connector/", "cli/", "app.py")
PROVIDER_ROOM = ("harness/provider/",)
# Package → the rooms of the server that may import it.
ROOMS = {
    "grpc": WIRE_ROOMS,
    "grpc_health": WIRE_ROOMS,
    "grpc_reflection": WIRE_ROOMS,
    "google.rpc": WIRE_ROOMS,
    "placet.v1": WIRE_ROOMS,
    "buf.validate": WIRE_ROOMS,
    "protovalidate": WIRE_ROOMS,
    "asyncpg": ("store/", "embedded/"),
    "httpcore": ("outbound/",),
    "pydantic_ai": PROVIDER_ROOM,
    "openai": PROVIDER_ROOM,
    "anthropic": PROVIDER_ROOM,
    "google.genai": PROVIDER_ROOM,
    "mistralai": PROVIDER_ROOM,
    "boto3": PROVIDER_ROOM,
    "botocore": PROVIDER_ROOM,
    "httpx2": PROVIDER_ROOM,
}
# They take more than a second to import, and come with the extra `agents`: only what is imported at need may.
LAZY = ("pydantic_ai", "openai", "anthropic", "google.genai", "mistralai", "boto3", "botocore", "httpx2")
EAGER = ("kinds.py", "wire.py", "local.py", "request.py", "failure.py", "exchange.py")


def test_wire_and_database_libraries_stay_in_their_rooms() -> None:
    strays = [
        f"{path}:{line} imports {module}"
        for path in python_files(SERVER)
        for module, line in imported_modules(parse(path))
        for package, rooms in ROOMS.items()
        if (module == package or module.startswith(f"{package}."))
        and not path.removeprefix(SERVER).startswith(rooms)
    ]
    assert [] == strays


def test_the_sdk_knows_the_server_only_in_its_testing_module() -> None:
    strays = [
        f"{path}:{line} imports {module}"
        for path in python_files("clients/python/placet/")
        if not path.startswith(("clients/python/placet/testing/", "clients/python/placet/testing.py"))
        for module, line in imported_modules(parse(path))
        if module.split(".")[0] == "placet_server"
    ]
    assert [] == strays


def test_the_stubs_have_no_init_module_that_would_hide_the_sdk() -> None:
    assert [] == [path for path in files() if path == "generated/python/placet/__init__.py"]
