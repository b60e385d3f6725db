# The types with which Cython compiles offset_map.py. The text there stays plain Python. Positions are
# below `_end`, the number of words, by `_find`.
cimport cython


cdef class OffsetMap:
    cdef object _hash
    cdef object _memory
    cdef unsigned long long[::1] _words
    cdef unsigned long long _end
    cdef readonly long long capacity
    cdef public long long latest_offset
    cdef readonly long long size

    @cython.locals(first="unsigned long long", second="unsigned long long", position="unsigned long long")
    cpdef bint put(self, bytes key, long long offset) except -1

    @cython.locals(first="unsigned long long", second="unsigned long long", newest="long long")
    cpdef long long get(self, bytes key) except -2

    cpdef account_for(self, long long offset)
    cdef bytes _digest(self, bytes key)

    @cython.locals(position="unsigned long long")
    cdef unsigned long long _find(self, unsigned long long first, unsigned long long second) noexcept
