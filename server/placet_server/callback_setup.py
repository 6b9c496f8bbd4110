"""From a configuration and a kernel to callbacks that are sent."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import quote

from placet.supervisor import Supervisor
from placet_server.config import Config, ConfigRefused
from placet_server.core.kernel import Kernel
from placet_server.core.publication.callback import Callbacks
from placet_server.core.publication.deliver import Deliverer, DeliverySettings
from placet_server.loops.callback_sender import CallbackSender
from placet_server.loops.target_reader import TargetReader
from placet_server.outbound.address import HostRules
from placet_server.outbound.http import HttpSender
from placet_server.outbound.target_file import TargetFile, TargetsRefused
from placet_server.telemetry.observer import CountingObserver

log = logging.getLogger("placet.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackParts:
    """What was read and checked before anything runs; `file` None: nobody is told."""

    callbacks: Callbacks
    rules: HostRules
    tls: ssl.SSLContext | None = None
    file: TargetFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCallbacks:
    """For the metrics; None where there is none."""

    reader: TargetReader | None = None
    deliverer: Deliverer | None = None


async def read_callbacks(config: Config) -> CallbackParts:
    """Raises ConfigRefused, with everything that is wrong with the file."""
    try:
        rules = HostRules(
            config.callback_hosts, is_insecure=config.callback_insecure, settings="PLACET_CALLBACK"
        )
    except ValueError as error:
        raise ConfigRefused(f"PLACET_CALLBACK_HOSTS: {error}") from error
    callbacks = Callbacks(attempts_max=config.callback_attempts)
    if config.callback_file is None:
        return CallbackParts(callbacks=callbacks, rules=rules)
    file = TargetFile(config.callback_file, rules)
    try:
        callbacks.replace(await asyncio.to_thread(file.read))
    except TargetsRefused as refused:
        raise ConfigRefused(f"PLACET_CALLBACK_FILE: {refused}") from refused
    tls = await asyncio.to_thread(_tls, config)
    return CallbackParts(callbacks=callbacks, rules=rules, tls=tls, file=file)


def start_callbacks(
    stack: AsyncExitStack, kernel: Kernel, parts: CallbackParts, config: Config, observer: CountingObserver
) -> OpenCallbacks:
    """Its own tasks: what is under way at the end has some seconds more."""
    if parts.file is None or parts.tls is None:
        return OpenCallbacks()
    supervisor = Supervisor()
    reader = TargetReader(parts.file, parts.callbacks)
    supervisor.start(reader.run())
    if not config.callback_slots:
        stack.push_async_callback(supervisor.cancel_all)
        return OpenCallbacks(reader=reader)
    settings = DeliverySettings(
        source=f"/{quote(config.name, safe='')}",
        slots_max=config.callback_slots,
        attempt_seconds=config.callback_seconds,
    )
    sender = HttpSender(parts.rules, parts.tls)
    deliverer = Deliverer(kernel.journal, sender, settings, observe=observer.delivery_tried)
    stack.push_async_callback(deliverer.close)
    stack.push_async_callback(supervisor.cancel_all)
    supervisor.start(CallbackSender(kernel, deliverer).run())
    return OpenCallbacks(reader=reader, deliverer=deliverer)


def _tls(config: Config) -> ssl.SSLContext:
    file = config.callback_tls_ca_file
    if file is None:
        # Takes as long to import as a tenth of the server, and few have callbacks.
        import httpx

        return httpx.create_ssl_context(trust_env=False)
    try:
        return ssl.create_default_context(cafile=str(file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigRefused(f"PLACET_CALLBACK_TLS_CA_FILE: {file}: {error}") from error
