# The types with which Cython compiles record_walk.py. The text there stays plain Python.
cimport cython
from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER


cdef inline const unsigned char* memoryview(object view) except NULL:
    """Return the bytes of a view, or of bytes; in the text this is Python's own function, which returns a view.

    A view of Cython's would be made for each call, which takes as long as the check of a few records.
    """
    if PyBytes_Check(view):
        return <const unsigned char*>PyBytes_AS_STRING(view)
    if not PyMemoryView_Check(view) or not PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(view), b"C"):
        raise TypeError("the records must be a contiguous memoryview")
    return <const unsigned char*>PyMemoryView_GET_BUFFER(view).buf


@cython.locals(
    plain="const unsigned char*", end=Py_ssize_t, number=Py_ssize_t, count=Py_ssize_t, headers=Py_ssize_t,
    smallest="long long", largest="long long", delta="long long", found="long long",
)
cpdef largest_timestamp(
    object records, Py_ssize_t position, Py_ssize_t size, Py_ssize_t record_count, Py_ssize_t max_headers,
    Py_ssize_t headers_per_record, long long base_timestamp, long long now_ms, long long before_ms,
    long long after_ms, bint needs_keys
)

@cython.locals(
    view="const unsigned char*", size=Py_ssize_t, end=Py_ssize_t, start=Py_ssize_t, rest=Py_ssize_t,
    found="long long", timestamp_delta="long long", delta="long long",
)
cpdef sound_records(
    object plain, Py_ssize_t position, Py_ssize_t count, long long previous, long long base_offset,
    long long last_offset_delta
)

@cython.locals(found="long long")
cdef inline Py_ssize_t _end_of_headers(
    const unsigned char* plain, Py_ssize_t position, Py_ssize_t end, Py_ssize_t count
) noexcept nogil

@cython.locals(byte="long long", found="long long")
cdef inline long long _varint(const unsigned char* plain, Py_ssize_t position, Py_ssize_t end) noexcept nogil

@cython.locals(byte="long long", result="long long", shift=int, index=Py_ssize_t)
cdef inline long long _varlong(const unsigned char* plain, Py_ssize_t position, Py_ssize_t end) noexcept nogil
