"""librdkafka's own parser of configurations, by its C functions: the judge of what a property's value means."""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile


@functools.cache
def _library() -> ctypes.CDLL:
    from confluent_kafka import cimpl

    library = ctypes.CDLL(cimpl.__file__)
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_conf_destroy.argtypes = [ctypes.c_void_p]
    library.rd_kafka_conf_set.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * 3, ctypes.c_size_t]
    library.rd_kafka_conf_get.argtypes = [ctypes.c_void_p, *[ctypes.c_char_p] * 2, ctypes.POINTER(ctypes.c_size_t)]
    return library


def meaning(name: str, value: str) -> str | None:
    """The value of a property as librdkafka prints it after it was set; None where it refuses the text."""
    library = _library()
    conf = ctypes.c_void_p(library.rd_kafka_conf_new())
    try:
        error = ctypes.create_string_buffer(512)
        if library.rd_kafka_conf_set(conf, name.encode(), value.encode(), error, 512) != 0:
            return None
        size = ctypes.c_size_t(512)
        found = ctypes.create_string_buffer(512)
        assert library.rd_kafka_conf_get(conf, name.encode(), found, ctypes.byref(size)) == 0
        return found.value.decode()
    finally:
        library.rd_kafka_conf_destroy(conf)


def librdkafka_table() -> str:
    """Return librdkafka's table of properties, which it can only print to a C stream."""
    library, libc = _library(), ctypes.CDLL(None)
    libc.fdopen.restype, libc.fdopen.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_char_p]
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    with tempfile.TemporaryFile() as file:
        stream = libc.fdopen(os.dup(file.fileno()), b"w")
        library.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        file.seek(0)
        return file.read().decode()
