# The types with which Cython compiles produce_prefix.py. The text there stays plain Python, and checks all bounds.
# `frame` stays an object, because what is cut out of it are views of the same request, which Python counts.
cimport cython
from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER


cdef inline const unsigned char* memoryview(object view) except NULL:
    """Return the bytes of a view, as in record_walk.pxd."""
    if not PyMemoryView_Check(view) or not PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(view), b"C"):
        raise TypeError("the request must be a contiguous memoryview")
    return <const unsigned char*>PyMemoryView_GET_BUFFER(view).buf


@cython.locals(
    view="const unsigned char*", size=Py_ssize_t, end=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t,
    length="long long",
)
cpdef split_request(object frame, int api_version, Py_ssize_t client_id_bytes)

@cython.locals(body=Py_ssize_t)
cdef inline Py_ssize_t _end_of_prefix(
    const unsigned char* view, Py_ssize_t size, int api_version, Py_ssize_t client_id_bytes
) noexcept nogil
