# The types with which Cython compiles record_walk.py. The text there stays plain Python. `inline` is a quarter of
# the time: without it each call copies the view of the buffer, 208 bytes.
cimport cython


@cython.locals(
    position=Py_ssize_t, size=Py_ssize_t, end=Py_ssize_t, number=Py_ssize_t, count=Py_ssize_t,
    headers=Py_ssize_t, smallest="long long", largest="long long", delta="long long", found="long long",
    has_null_key=bint,
)
cpdef walk_records(
    const unsigned char[::1] plain, Py_ssize_t record_count, Py_ssize_t max_headers, Py_ssize_t headers_per_record
)

@cython.locals(found="long long")
cdef inline Py_ssize_t _end_of_headers(
    const unsigned char[::1] plain, Py_ssize_t position, Py_ssize_t end, Py_ssize_t count
) noexcept nogil

@cython.locals(byte="long long", found="long long")
cdef inline long long _varint(const unsigned char[::1] plain, Py_ssize_t position, Py_ssize_t end) noexcept nogil

@cython.locals(byte="long long", result="long long", shift=int, index=Py_ssize_t)
cdef inline long long _varlong(const unsigned char[::1] plain, Py_ssize_t position, Py_ssize_t end) noexcept nogil
