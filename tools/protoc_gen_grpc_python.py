"""A protoc plugin that gives buf what it lacks: grpcio-tools' Python service stubs.

Reads a CodeGeneratorRequest from stdin, lets grpc_tools.protoc write the stubs into a temporary folder
and answers with their text.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from google.protobuf.compiler.plugin_pb2 import CodeGeneratorRequest, CodeGeneratorResponse
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc


def main() -> int:
    request = CodeGeneratorRequest.FromString(sys.stdin.buffer.read())
    response = CodeGeneratorResponse(supported_features=CodeGeneratorResponse.FEATURE_PROTO3_OPTIONAL)
    with_services = [
        file.name for file in request.proto_file if file.name in request.file_to_generate and file.service
    ]
    if with_services:
        with tempfile.TemporaryDirectory() as folder:
            status = _write_stubs(request, with_services, Path(folder))
            if status != 0:
                return status
            for path in sorted(Path(folder).rglob("*_grpc.py")):
                response.file.add(name=path.relative_to(folder).as_posix(), content=path.read_text())
    sys.stdout.buffer.write(response.SerializeToString())
    return 0


def _write_stubs(request: CodeGeneratorRequest, names: list[str], folder: Path) -> int:
    descriptors = folder / "descriptors.binpb"
    descriptors.write_bytes(FileDescriptorSet(file=request.proto_file).SerializeToString())
    arguments = ["protoc", f"--descriptor_set_in={descriptors}", f"--grpc_python_out={folder}", *names]
    return int(protoc.main(arguments))


if __name__ == "__main__":
    sys.exit(main())
