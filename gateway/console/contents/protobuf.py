"""Reads Protobuf with a FileDescriptorSet, as `protoc --include_imports --descriptor_set_out=FILE` writes it."""

from __future__ import annotations

from typing import Any

from gateway.console.contents.errors import ContentError
from gateway.console.contents.texts import json_text


def message_class(descriptors: bytes, name: str) -> Any:
    """Return the class of the message `name`; an empty name means the only message of the last file. Raises ContentError."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415 - slow to import

    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(descriptors)
        pool = descriptor_pool.DescriptorPool()
        given = {file.name for file in files.file}
        for file in files.file:
            for needed in file.dependency:
                _add_well_known(pool, needed, given)
            pool.Add(file)
        wanted = name or _only_message(files)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(wanted))
    except ContentError:
        raise
    except KeyError:
        raise ContentError(
            f"the descriptors have no message {wanted}; they have {_names(files) or 'none'}"
        ) from None
    except Exception as error:  # noqa: BLE001 - the package raises errors of several kinds on wrong bytes
        raise ContentError(
            f"the file is no FileDescriptorSet with all imports: {str(error)[:300]}; make it with protoc --include_imports "
            "--descriptor_set_out=FILE"
        ) from None


def _add_well_known(pool: Any, needed: str, given: set[str]) -> None:
    """Add a file of protobuf's own, such as google/protobuf/timestamp.proto, which people leave out."""
    if needed in given or not needed.startswith("google/protobuf/"):
        return
    from google.protobuf import (  # noqa: PLC0415 - registers the files in the default pool
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    known = (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    for module in known:
        if module.DESCRIPTOR.name == needed:
            file = descriptor_pb2.FileDescriptorProto()
            module.DESCRIPTOR.CopyToProto(file)
            pool.Add(file)
            given.add(needed)


def _only_message(files: Any) -> str:
    messages = (
        [_full_name(files.file[-1], message) for message in files.file[-1].message_type] if files.file else []
    )
    if len(messages) != 1:
        raise ContentError(f"name the message type; the descriptors have {_names(files) or 'none'}")
    return messages[0]


def _names(files: Any) -> str:
    names = [_full_name(file, message) for file in files.file for message in file.message_type]
    return ", ".join(names[:20])


def _full_name(file: Any, message: Any) -> str:
    return f"{file.package}.{message.name}" if file.package else str(message.name)


def read(content: bytes, kind: Any) -> str:
    """Return a content as JSON. Raises ContentError."""
    from google.protobuf import json_format  # noqa: PLC0415 - slow to import
    from google.protobuf.message import DecodeError  # noqa: PLC0415

    message = kind()
    try:
        message.ParseFromString(content)
        value = json_format.MessageToDict(message, preserving_proto_field_name=True)
    except DecodeError as error:
        raise ContentError(f"the content is no {kind.DESCRIPTOR.full_name}: {str(error)[:300]}") from None
    except (TypeError, ValueError, RecursionError, json_format.Error) as error:
        raise ContentError(f"the content can't be shown as JSON: {str(error)[:300]}") from None
    return json_text(value)
