# distutils: language = c++
# cython: language_level=3, boundscheck=True
"""Unroll, allocate and schedule with compiled code.

``expand``, ``plan`` and ``schedule`` give exactly the results of :mod:`acceld.nki.timing.value_numbering`,
:mod:`acceld.nki.timing.sbuf_allocation` and :mod:`acceld.nki.timing.list_schedule`, which explain the mechanism. Classes
and functions have the names and the order that they have there. :mod:`acceld.nki.timing.passes` chooses between both.

Programs come from hostile code, so every access to a sequence is checked, and sizes are limited by memory alone, as in
Python. Lists for readers are made when they are first read.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport exp

from acceld.nki.ir.program import Engine, Loop, Space
from acceld.nki.timing import list_schedule, sbuf_allocation, value_numbering
from acceld.nki.timing.cost import DMA_OPS
from acceld.nki.timing.sbuf_allocation import ENGINES, INDEX

cdef extern from *:
    const char *ACCELD_BUILT_FROM

BUILT_FROM = ACCELD_BUILT_FROM.decode("ascii")
"""SHA-256 of this file when it was compiled."""

cdef extern from * nogil:
    """
    #include <algorithm>
    #include <climits>
    #include <queue>
    #include <stdexcept>
    #include <vector>

    namespace {

    // A vector whose every access is checked.
    template <class T> struct Vector : std::vector<T> {
        T &operator[](size_t place) { return this->at(place); }
        T pop_last() {
            T last = this->at(this->size() - 1);
            this->pop_back();
            return last;
        }
        void insert_at(size_t place, const T &item) {
            if (place > this->size()) throw std::out_of_range("place");
            this->insert(this->begin() + place, item);
        }
        void remove_at(size_t place) {
            this->at(place);
            this->erase(this->begin() + place);
        }
        // The position of the next item, as an int.
        int next() const {
            if (this->size() >= INT_MAX) throw std::bad_alloc();
            return (int)this->size();
        }
    };

    // Sorts numbers by the item that each names. Equal ones keep their order.
    inline void sort_by(std::vector<int> &numbers, const std::vector<double> &items) {
        auto before = [&items](int one, int other) { return items.at(one) < items.at(other); };
        std::stable_sort(numbers.begin(), numbers.end(), before);
    }

    // First in, first out.
    template <class T> class Queue {
        std::vector<T> items;
        size_t first = 0, out = 0;

      public:
        // The number of items that were ever taken, and that of items that were ever in.
        ptrdiff_t popped() const { return (ptrdiff_t)out; }
        ptrdiff_t pushed() const { return (ptrdiff_t)(out + size()); }
        size_t size() const { return items.size() - first; }
        T &operator[](size_t place) {
            if (place >= size()) throw std::out_of_range("place");
            return items.at(first + place);
        }
        void push_back(const T &item) { items.push_back(item); }
        void pop_first() {
            if (!size()) throw std::out_of_range("empty");
            ++first, ++out;
            if (first >= 1024 && 2 * first >= items.size()) {
                items.erase(items.begin(), items.begin() + first);
                first = 0;
            }
        }
    };

    inline size_t mixed(unsigned long long number) {
        number *= 0x9E3779B97F4A7C15ull;
        return (size_t)(number ^ (number >> 32));
    }

    // A hash table by numbers. Its size is a power of two, and at most half of it is full.
    template <class V> class Map {
        struct Slot {
            long long key;
            unsigned long long filled;  // in this round: rounds are the times that it was cleared
            V value;
        };
        std::vector<Slot> slots;
        unsigned long long round = 1;
        size_t count = 0;

        Slot &slot(long long key) {
            size_t place = mixed((unsigned long long)key);
            for (;; ++place) {
                Slot &found = slots.at(place & (slots.size() - 1));
                if (found.filled != round || found.key == key) return found;
            }
        }

      public:
        bool get(long long key, V &value) {
            if (!count) return false;
            Slot &found = slot(key);
            if (found.filled != round) return false;
            value = found.value;
            return true;
        }
        void put(long long key, const V &value) {
            if (2 * (count + 1) > slots.size()) {
                std::vector<Slot> old(slots.empty() ? 8 : 2 * slots.size(), Slot());
                old.swap(slots);
                for (Slot &one : old)
                    if (one.filled == round) slot(one.key) = one;
            }
            Slot &found = slot(key);
            if (found.filled != round) ++count;
            found.key = key, found.filled = round, found.value = value;
        }
        void clear() { ++round, count = 0; }
    };

    // A hash table by sequences of numbers.
    template <class V> class Known {
        struct Slot {
            size_t begin, length;  // of the key in `numbers`; no length if the slot is free
            size_t hash;
            V value;
        };
        std::vector<long long> numbers;
        std::vector<Slot> slots;
        size_t count = 0;

        static size_t hashed(const std::vector<long long> &key) {
            size_t found = key.size();
            for (long long number : key) found = mixed(found ^ (unsigned long long)number) + 1;
            return found;
        }
        Slot &slot(const std::vector<long long> &key, size_t hash) {
            for (size_t place = hash;; ++place) {
                Slot &found = slots.at(place & (slots.size() - 1));
                if (!found.length || (found.hash == hash && equal(found, key))) return found;
            }
        }
        bool equal(const Slot &one, const std::vector<long long> &key) const {
            return one.length == key.size() && std::equal(key.begin(), key.end(), numbers.begin() + one.begin);
        }

      public:
        bool get(const std::vector<long long> &key, V &value) {
            if (!count) return false;
            Slot &found = slot(key, hashed(key));
            if (!found.length) return false;
            value = found.value;
            return true;
        }
        void put(const std::vector<long long> &key, const V &value) {
            if (key.empty()) throw std::out_of_range("key");
            if (2 * (count + 1) > slots.size()) {
                std::vector<Slot> old(slots.empty() ? 8 : 2 * slots.size(), Slot());
                old.swap(slots);
                for (Slot &one : old) {
                    if (!one.length) continue;
                    size_t place = one.hash;
                    while (slots.at(place & (slots.size() - 1)).length) ++place;
                    slots.at(place & (slots.size() - 1)) = one;
                }
            }
            size_t hash = hashed(key);
            Slot &found = slot(key, hash);
            if (!found.length) {
                ++count;
                found.begin = numbers.size(), found.length = key.size(), found.hash = hash;
                numbers.insert(numbers.end(), key.begin(), key.end());
            }
            found.value = value;
        }
    };

    // A value on the heap of those that may leave SBUF.
    struct Entry {
        double worth;
        long long order;
        int value;
        bool operator<(const Entry &other) const {
            return worth != other.worth ? worth > other.worth : order > other.order;
        }
    };

    struct Heap : std::priority_queue<Entry> {
        Entry pop_least() {
            if (this->empty()) throw std::out_of_range("empty");
            Entry least = this->top();
            this->pop();
            return least;
        }
    };

    }  // namespace
    """

    cdef cppclass Vector[T]:  # of numbers
        T &operator[](Py_ssize_t) except +
        void push_back(const T &) except +
        int next() except +
        void assign(size_t, const T &) except +
        void clear()
        void reserve(size_t) except +
        size_t size()

    void sort_by(Vector[int] &, const Vector[double] &) except +

    cdef cppclass Table "Vector" [T]:  # of records
        T at(Py_ssize_t) except +
        void push_back(const T &) except +
        T pop_last() except +
        void insert_at(Py_ssize_t, const T &) except +
        void remove_at(Py_ssize_t) except +
        int next() except +
        size_t size()

    cdef cppclass Queue[T]:  # of numbers
        Py_ssize_t popped()
        Py_ssize_t pushed()
        T &operator[](Py_ssize_t) except +
        void push_back(const T &) except +
        void pop_first() except +
        size_t size()

    cdef cppclass Map[V]:
        bint get(long long, V &) except +
        void put(long long, const V &) except +
        void clear()

    cdef cppclass Known[V]:
        bint get(const Vector[long long] &, V &) except +
        void put(const Vector[long long] &, const V &) except +

    cdef struct Entry:
        double worth
        long long order
        int value

    cdef cppclass Heap:
        void push(const Entry &) except +
        Entry pop_least() except +
        bint empty()


ctypedef long long Number


# Unroll and number values: acceld.nki.timing.value_numbering

cdef object _SBUF = Space.SBUF, _PSUM = Space.PSUM, _HBM = Space.HBM  # members of an enumeration are slow to read

cdef struct Values:  # consecutive ones
    int first
    int count

cdef struct Place:  # of a cell's value
    int buffer
    Number distance
    int number  # of the instruction that wrote the cell; -1 if the value lies in the cell

cdef struct Turns:  # the newest values written to each of the places (value_numbering.PLACES is two)
    Values older
    Values newer

cdef struct Event:
    int site
    int variant
    bint repeat
    Py_ssize_t turn
    Py_ssize_t ins  # position of its first operand
    int operands
    Py_ssize_t results  # number of results of all earlier events
    Values outs
    Py_ssize_t replaced  # position of the first value that it overwrites
    int overwrites

cdef struct Kind:
    int site
    double bytes
    Number row
    bint in_sbuf
    bint in_psum
    bint loaded


class Stream(value_numbering.Stream):
    """A stream whose lists are made when they are first read."""

    __slots__ = ("events",)

    def __init__(self, events):
        self.events = events

    def __getattr__(self, name):
        found = self.events.listed(name)
        setattr(self, name, found)
        return found


def expand(prepared, *, numbering):
    """Unroll ``prepared`` and number its values."""
    cdef _Expander expander = _Expander(prepared, numbering, ())
    stream = expander.run()
    if expander.scattered:
        expander = _Expander(prepared, numbering, expander.scattered)
        stream = expander.run()
    if expander.scattered:  # what the first pass took for repeats hid these
        stream = _Expander(prepared, numbering, prepared.templates).run()
    return stream


cdef class _Events:
    """Events and values, as parallel vectors."""

    cdef list sites
    cdef list spaces  # of each kind
    cdef Table[Event] events
    cdef Vector[int] ins
    cdef Vector[int] replaced
    cdef Table[Kind] kinds
    cdef Vector[int] value_kind
    cdef Vector[int] value_event

    def __cinit__(self):
        self.sites, self.spaces = [], []

    def listed(self, str name):
        """Return a list of :class:`value_numbering.Stream` by its name."""
        cdef Event event
        cdef int at
        if name == "value_kind":
            return _listed(self.value_kind)
        if name == "value_event":
            return _listed(self.value_event)
        if name == "kinds":
            return [self._kind(at) for at in range(self.kinds.next())]
        if name not in value_numbering.Stream.__slots__:
            raise AttributeError(name)
        found = []
        for at in range(self.events.next()):
            event = self.events.at(at)
            if name == "templates":
                found.append((<_Site>self.sites[event.site]).template)
            elif name == "variants":
                found.append(event.variant)
            elif name == "inputs":
                found.append(_tuple(self.ins, event.ins, event.operands))
            elif name == "outputs":
                found.append(tuple(range(event.outs.first, event.outs.first + event.outs.count)))
            elif name == "replaced":
                found.append(_tuple(self.replaced, event.replaced, event.overwrites))
            elif name == "repeat":
                found.append(bool(event.repeat))
            elif name == "turn":
                found.append(event.turn)
        return found

    cdef object _kind(self, int at):
        cdef Kind kind = self.kinds.at(at)
        template = (<_Site>self.sites[kind.site]).template
        return value_numbering.Kind(template, kind.bytes, kind.row, self.spaces[at], bool(kind.loaded))


cdef list _listed(Vector[int] &numbers):
    cdef int at
    return [numbers[at] for at in range(numbers.next())]


cdef list _listed_us(Vector[double] &times):
    cdef int at
    return [times[at] for at in range(times.next())]


cdef tuple _tuple(Vector[int] &numbers, Py_ssize_t begin, Py_ssize_t count):
    cdef Py_ssize_t at
    return tuple([numbers[at] for at in range(begin, begin + count)])


cdef class _Buffer:
    """The values of a buffer's cells, and the places of those that lie elsewhere."""

    cdef int number
    cdef Map[int] cells
    cdef Map[Place] moved
    cdef Py_ssize_t away  # number of cells whose values lie elsewhere
    cdef bint rewritten  # while it was in scope


@cython.no_gc
cdef class _Cells:
    """The cells of one access of an instruction."""

    cdef _Buffer buffer
    cdef list bases
    cdef Vector[Number] offsets

    def __cinit__(self, access, list buffers):
        self.buffer = buffers[access.buffer]
        self.bases = access.bases
        for offset in <tuple>access.offsets:
            self.offsets.push_back(<Number>offset)


cdef class _Accumulators:
    """Values in an engine's accumulators, by the number of partitions."""

    cdef Vector[Number] partitions
    cdef Vector[int] values

    cdef int hold(self, Number partitions, int value) except -1:
        """Replace what they hold as far as an execution writes them."""
        cdef Vector[Number] spans
        cdef Vector[int] values
        cdef int at
        for at in range(self.values.next()):
            if self.partitions[at] > partitions:
                spans.push_back(self.partitions[at])
                values.push_back(self.values[at])
        spans.push_back(partitions)
        values.push_back(value)
        self.partitions, self.values = spans, values
        return 0


@cython.no_gc
cdef class _Site:
    """An instruction, and the tables that its executions look up."""

    cdef object template
    cdef int index
    cdef int number
    cdef list reads  # of _Cells
    cdef list writes
    cdef Vector[int] kinds  # of value that each access writes
    cdef int signature  # equal for instructions that compute the same; -1 if they are never merged
    cdef list given  # what executions take from their loop variables: a list for each
    cdef list variants
    cdef list first
    cdef list keeps
    cdef Vector[int] within  # loops, by their positions in _Expander.iteration
    cdef list cleared  # buffers
    cdef bint in_place  # an execution is a repeat only of one that wrote the same cells
    cdef bint clears
    cdef bint stores
    cdef bint sequential
    cdef bint accumulates
    cdef bint invariant_only
    cdef _Accumulators accumulator  # that it writes
    cdef bint folds
    cdef Number partitions
    cdef Py_ssize_t executed


cdef class _Expander:
    cdef object prepared
    cdef bint numbering
    cdef object in_place  # instructions whose results are repeats only in the same cells
    cdef set scattered  # instructions whose repeats were read beside values that lie elsewhere
    cdef _Events stream
    cdef list buffers
    cdef Known[Values] known
    cdef dict loops  # position of each loop in `iteration`
    cdef Vector[Number] iteration  # the current one of each running loop
    cdef dict fresh  # buffers declared in each loop
    cdef dict accumulators  # by engine
    cdef Known[Turns] places  # by buffer and first cell
    cdef int outermost  # the first event of the current outermost loop
    cdef dict signatures
    cdef dict patterns
    cdef list tree
    cdef object order
    cdef Vector[Number] key
    cdef Vector[int] overwritten

    def __init__(self, prepared, numbering, in_place):
        cdef _Buffer made
        self.prepared, self.numbering, self.in_place = prepared, numbering, in_place
        self.scattered, self.stream = set(), _Events()
        self.loops, self.fresh, self.accumulators, self.signatures, self.patterns = {}, {}, {}, {}, {}
        self.buffers = []
        for number, buffer in enumerate(prepared.program.buffers):
            made = _Buffer()
            made.number = number
            self.buffers.append(made)
            if buffer.scope:
                self.fresh.setdefault(buffer.scope[-1], []).append(made)
        self.order = iter(prepared.templates)
        self.tree = self._index(prepared.program.body)

    cdef int _loop(self, number) except -1:
        """Return a loop's position in ``iteration``."""
        if number not in self.loops:
            self.loops[number] = len(self.loops)
            self.iteration.push_back(0)
        return self.loops[number]

    cdef list _index(self, tuple body):
        """Return the sites of ``body``, and its loops as (loop, trips, buffers declared there, content)."""
        return [
            (self._loop(node.id), self.prepared.trips[node.id], self.fresh.get(node.id, []), self._index(node.body))
            if isinstance(node, Loop)
            else self._site(self.prepared.templates[next(self.order)])
            for node in body
        ]

    cdef _Site _site(self, template):
        cdef _Site site = _Site()
        cdef _Events stream = self.stream
        buffers = self.prepared.program.buffers
        site.template = template
        site.index, site.number = len(stream.sites), template.number
        stream.sites.append(site)
        site.clears = template.clears
        if site.clears:
            site.cleared = [self.buffers[access.buffer] for access in template.instruction.dsts]
            return site
        site.reads = [_Cells(access, self.buffers) for access in <list>template.reads]
        site.writes = [_Cells(access, self.buffers) for access in <list>template.writes]
        site.stores, site.sequential = template.is_store, template.sequential
        loaded = not site.stores and template.instruction.op in DMA_OPS
        for access in <list>template.writes:
            grid, space = self.prepared.grids[access.buffer], buffers[access.buffer].space
            self._kind(site, grid.cell_bytes, grid.row_bytes, space, loaded)
        accumulator = template.accumulator
        if accumulator is not None:
            self._kind(site, 0.0, 0, _HBM, False)
            site.accumulator = self.accumulators.setdefault(accumulator.engine, _Accumulators())
            site.partitions, site.folds = accumulator.partitions, accumulator.reads
        site.signature = -1
        if self.numbering and template.signature >= 0:
            key = template.signature, tuple([buffer for buffer, _ in <list>template.input_bases])
            site.signature = self.signatures.setdefault(key, len(self.signatures))
            site.given = [bases for _, bases in <list>template.input_bases] + template.positions
        site.variants, site.first, site.keeps = template.variants, template.first, template.keeps
        for loop in template.merged_within:
            site.within.push_back(self._loop(loop))
        site.in_place = template.number in self.in_place
        site.accumulates, site.invariant_only = template.accumulates, template.invariant_only
        return site

    cdef int _kind(self, _Site site, double size, Number row, space, bint loaded) except -1:
        """Note the kind of a value that the site writes."""
        cdef Kind kind
        kind.site, kind.bytes, kind.row, kind.loaded = site.index, size, row, loaded
        kind.in_sbuf, kind.in_psum = space is _SBUF, space is _PSUM
        site.kinds.push_back(self.stream.kinds.next())
        self.stream.kinds.push_back(kind)
        self.stream.spaces.append(space)
        return 0

    def run(self):
        """Execute all sites and return the stream."""
        for node in self.tree:
            self.outermost = self.stream.events.next()
            self._body([node])
        return Stream(self.stream)

    cdef int _body(self, list tree) except -1:
        cdef int loop
        cdef Number trip, trips
        cdef _Buffer buffer
        for node in tree:
            if isinstance(node, _Site):
                self._execute(<_Site>node)
                continue
            loop, trips = node[0], node[1]
            for trip in range(trips):
                self.iteration[loop] = trip
                for buffer in <list>node[2]:
                    buffer.cells.clear()
                self._body(<list>node[3])
        return 0

    cdef int _execute(self, _Site site) except -1:
        cdef _Events stream = self.stream
        cdef _Cells access
        cdef _Buffer buffer
        cdef Event event
        cdef Py_ssize_t at = site.executed
        cdef Number base, cell
        cdef int place, value = -1, number, position, newest
        cdef bint first, kept, merge
        site.executed = at + 1
        if site.clears:
            for buffer in site.cleared:
                buffer.cells.clear()
            return 0
        event.variant = 0
        if site.variants is not None:
            event.variant = site.variants[at]
            if event.variant < 0:
                return 0
        number = stream.events.next()
        if not number & 0xFFFF:
            PyErr_CheckSignals()
        event.site, event.turn, event.ins = site.index, at, stream.ins.size()
        for access in site.reads:
            base = access.bases[at]
            for place in range(access.offsets.next()):
                if access.buffer.cells.get(base + access.offsets[place], value):
                    stream.ins.push_back(value)
            if access.offsets.size() > 1 and access.buffer.away:
                self._read_together(access, base)
        first = site.first is not None and site.first[at]
        kept = site.keeps is not None and site.keeps[at]
        if site.accumulates or kept or site.first is not None:
            for access in site.writes:
                base = access.bases[at]
                for place in range(access.offsets.next()):
                    if access.buffer.cells.get(base + access.offsets[place], value):
                        stream.ins.push_back(value)
        if site.accumulator is not None and (site.folds or kept):
            for place in range(site.accumulator.values.next()):
                stream.ins.push_back(site.accumulator.values[place])
        event.operands = <int>(stream.ins.next() - event.ins)
        merge = site.signature >= 0
        if merge and site.invariant_only:
            newest = -1
            for place in range(event.operands):
                newest = max(newest, stream.value_event[stream.ins[event.ins + place]])
            merge = newest < self.outermost
        event.repeat = False
        if merge:
            self._write_key(site, event, first)
            event.repeat = self.known.get(self.key, event.outs)
        if not event.repeat:
            event.outs = self._made(site, number)
            if merge:
                self.known.put(self.key, event.outs)
        if site.accumulator is not None:
            if not event.outs.count:
                raise IndexError("an accumulator without a value")
            site.accumulator.hold(site.partitions, event.outs.first + event.outs.count - 1)
        self.overwritten.clear()
        position = 0
        for access in site.writes:
            base = access.bases[at]
            for place in range(access.offsets.next()):
                cell = base + access.offsets[place]
                if access.buffer.cells.get(cell, value):
                    self.overwritten.push_back(value)
                access.buffer.cells.put(cell, _item(event.outs, position))
                position += 1
                if access.buffer.away:
                    self._at_home(access.buffer, cell)
        if event.repeat:
            self._move(site, at, event.outs)
        event.replaced, event.results = stream.replaced.size(), 0
        if number:
            event.results = stream.events.at(number - 1).results + stream.events.at(number - 1).outs.count
        if not self.numbering:
            for place in range(self.overwritten.next()):
                stream.replaced.push_back(self.overwritten[place])
        elif not event.repeat and site.writes:
            self._rotated(site, at, event)
        event.overwrites = <int>(stream.replaced.next() - event.replaced)
        stream.events.push_back(event)
        return 0

    cdef int _write_key(self, _Site site, Event &event, bint first) except -1:
        """Write the numbers that are equal for executions that compute the same from the same values."""
        cdef _Cells access
        cdef int place
        cdef Py_ssize_t at = event.turn
        self.key.clear()
        self.key.push_back(site.signature)
        self.key.push_back(event.variant)
        self.key.push_back(first)
        self.key.push_back(event.operands)
        for place in range(event.operands):
            self.key.push_back(self.stream.ins[event.ins + place])
        self.key.push_back(len(site.given))
        for values in site.given:
            self._write_given((<list>values)[at])
        self.key.push_back(site.within.next())
        for place in range(site.within.next()):
            self.key.push_back(self.iteration[site.within[place]])
        if site.in_place:
            for access in site.writes:
                self.key.push_back(access.buffer.number)
                self.key.push_back(access.bases[at])
        return 0

    cdef int _write_given(self, given) except -1:
        """Write a position, or the pattern and the position of a mask that excludes something."""
        cdef Number pattern = 0
        if given is None:
            pattern, given = 1, 0
        elif type(given) is tuple:
            coefs, given = given
            pattern = self.patterns.setdefault(coefs, len(self.patterns) + 2)
        self.key.push_back(pattern)
        self.key.push_back(given)
        return 0

    cdef int _at_home(self, _Buffer buffer, Number cell) except -1:
        """Forget that a cell's value lies elsewhere."""
        cdef Place place
        if buffer.moved.get(cell, place) and place.number >= 0:
            place.number = -1
            buffer.moved.put(cell, place)
            buffer.away -= 1
        return 0

    cdef int _move(self, _Site site, Py_ssize_t at, Values outs) except -1:
        """Record the cells whose values, made before, lie elsewhere."""
        cdef _Cells access
        cdef Place found
        cdef Number cell
        cdef int place, position = 0
        for access in site.writes:
            for place in range(access.offsets.next()):
                cell = <Number>access.bases[at] + access.offsets[place]
                found = self._origin(_item(outs, position))
                position += 1
                if found.buffer != access.buffer.number or found.distance != cell:
                    self._at_home(access.buffer, cell)
                    found.distance, found.number = cell - found.distance, site.number
                    access.buffer.moved.put(cell, found)
                    access.buffer.away += 1
        return 0

    cdef Place _origin(self, int value) except *:
        """Return the buffer and, as the distance from 0, the cell that a value was made in."""
        cdef _Cells access
        cdef Place found
        cdef Event event = self.stream.events.at(self.stream.value_event[value])
        cdef int place = value - event.outs.first
        for access in (<_Site>self.stream.sites[event.site]).writes:
            if place < access.offsets.next():
                found.buffer, found.number = access.buffer.number, 0
                found.distance = <Number>access.bases[event.turn] + access.offsets[place]
                return found
            place -= access.offsets.next()
        raise ValueError("an accumulator's value is in no cell")

    cdef int _read_together(self, _Cells access, Number base) except -1:
        """Note the instructions whose values do not lie side by side as the cells of one access do."""
        cdef Place place, first
        cdef Number cell
        cdef int at, value = -1
        cdef bint found = False, apart = False
        numbers = []
        first.buffer, first.distance = -1, 0
        for at in range(access.offsets.next()):
            cell = base + access.offsets[at]
            if not access.buffer.cells.get(cell, value):
                continue
            if access.buffer.moved.get(cell, place) and place.number >= 0:
                numbers.append(place.number)
            else:
                place.buffer, place.distance = -1, 0
            if not found:
                found, first = True, place
            apart = apart or place.buffer != first.buffer or place.distance != first.distance
        if apart:
            self.scattered.update(numbers)
        return 0

    cdef Values _made(self, _Site site, int event) except *:
        """Return new values: one for each cell that the execution writes, and one for its accumulators."""
        cdef _Events stream = self.stream
        cdef _Cells access
        cdef Values made
        cdef int number = 0, place
        made.first = stream.value_kind.next()
        for access in site.writes:
            for place in range(access.offsets.next()):
                stream.value_kind.push_back(site.kinds[number])
                stream.value_event.push_back(event)
            number += 1
        if site.accumulator is not None:
            stream.value_kind.push_back(site.kinds[number])
            stream.value_event.push_back(event)
        made.count = stream.value_kind.next() - made.first
        return made

    cdef int _rotated(self, _Site site, Py_ssize_t at, Event &event) except -1:
        """Note the values that this execution overwrites: those that the buffer held two writes before."""
        cdef _Cells access = <_Cells>site.writes[0]
        cdef Turns turns
        cdef int place
        if not access.buffer.rewritten:
            if site.accumulates or not self.overwritten.size() or self._reads_all(event):
                return 0
            access.buffer.rewritten = True
        self.key.clear()
        self.key.push_back(access.buffer.number)
        self.key.push_back(access.bases[at])
        if not self.places.get(self.key, turns):
            turns.older.count = turns.newer.count = 0
        for place in range(turns.older.count):
            self.stream.replaced.push_back(turns.older.first + place)
        turns.older, turns.newer = turns.newer, event.outs
        self.places.put(self.key, turns)
        return 0

    cdef bint _reads_all(self, Event &event) except -1:
        """Return True if the execution reads each value that it overwrites."""
        cdef int at, place, value
        for at in range(self.overwritten.next()):
            value = self.overwritten[at]
            for place in range(event.operands):
                if self.stream.ins[event.ins + place] == value:
                    break
            else:
                return False
        return True


cdef int _item(Values values, int position) except -1:
    if not 0 <= position < values.count:
        raise IndexError("fewer values than cells")
    return values.first + position


# Allocate SBUF: acceld.nki.timing.sbuf_allocation

cdef int _DMA = INDEX[Engine.DMA]
cdef int _VECTOR = INDEX[Engine.VECTOR]
cdef int _TENSOR = INDEX[Engine.TENSOR]
cdef int _GPSIMD = INDEX[Engine.GPSIMD]
cdef int _ENGINES = len(ENGINES)
cdef double HOPELESS = sbuf_allocation.HOPELESS
cdef int MAX_PENDING = sbuf_allocation.MAX_PENDING
cdef Number END = sbuf_allocation.END
cdef double SMALL_BYTES = sbuf_allocation.SMALL_BYTES
cdef int _DEEPEST = 1000  # nested executions, as Python's limit on recursion has it


class Machine(sbuf_allocation.Machine):
    """A machine whose lists of operations are made when they are first read."""

    __slots__ = ("operations",)

    def __init__(self, operations):
        self.operations = operations

    def __getattr__(self, name):
        found = self.operations.listed(name)
        setattr(self, name, found)
        return found

    def engine_us(self):
        return self.operations.engine_us()

    def line_us(self):
        return self.operations.line_us()


def plan(stream, model, params, chip):
    """Allocate the stream's values in SBUF, and emit machine operations."""
    return _Planner(stream.events, model, params, chip).run()


cdef class _Operations:
    """Machine operations in issue order, as parallel vectors."""

    cdef Vector[int] engine
    cdef Vector[double] busy_us
    cdef Vector[int] waits
    cdef Vector[Py_ssize_t] ends  # of each operation's waits
    cdef Vector[int] line  # position in `lines`
    cdef Vector[int] kind  # position in `kinds`
    cdef Vector[int] other  # engine that may run it; -1 for none
    cdef Vector[double] other_us
    cdef Vector[double] rows
    cdef Vector[int] quarters
    cdef Vector[double] late_us
    cdef dict lines
    cdef dict kinds

    def __cinit__(self):
        self.lines, self.kinds = {}, {}

    @staticmethod
    cdef _Operations of(machine):
        """Return the operations of a machine made in Python."""
        cdef _Operations made = _Operations()
        cdef Vector[int] waits
        cdef int number
        for number, wanted in enumerate(machine.waits):
            waits.clear()
            for wait in wanted:
                waits.push_back(wait)
            line, kind = made.line_number(machine.line[number]), made.kind_number(machine.kind[number])
            made.add(machine.engine[number], machine.busy_us[number], waits, line, kind)
        for number, (engine, us) in machine.choices.items():
            made.other[number], made.other_us[number] = engine, us
        for number, share in machine.rows.items():
            made.rows[number] = share
        for number, bits in machine.quarters.items():
            made.quarters[number] = bits
        for number, us in machine.late_us.items():
            made.late_us[number] = us
        return made

    cdef int line_number(self, line) except -1:
        return self.lines.setdefault(line, len(self.lines))

    cdef int kind_number(self, kind) except -1:
        return self.kinds.setdefault(kind, len(self.kinds))

    cdef int add(self, int engine, double busy, Vector[int] &waits, int line, int kind) except -1:
        """Append an operation and return its number."""
        cdef int number = self.engine.next(), at
        self.engine.push_back(engine)
        self.busy_us.push_back(busy)
        for at in range(waits.next()):
            self.waits.push_back(waits[at])
        self.ends.push_back(self.waits.size())
        self.line.push_back(line)
        self.kind.push_back(kind)
        self.other.push_back(-1)
        self.other_us.push_back(0.0)
        self.rows.push_back(1.0)
        self.quarters.push_back(0)
        self.late_us.push_back(0.0)
        return number

    cdef Py_ssize_t begin(self, int number) except -1:
        """Return the position of the operation's first wait."""
        return self.ends[number - 1] if number else 0

    def listed(self, str name):
        """Return a list or a dictionary of :class:`sbuf_allocation.Machine` by its name."""
        cdef int number, count = self.engine.next()
        if name == "engine":
            return _listed(self.engine)
        if name == "busy_us":
            return _listed_us(self.busy_us)
        if name == "waits":
            return [
                _tuple(self.waits, self.begin(number), self.ends[number] - self.begin(number))
                for number in range(count)
            ]
        if name == "line":
            lines = list(self.lines)
            return [lines[self.line[number]] for number in range(count)]
        if name == "kind":
            kinds = list(self.kinds)
            return [kinds[self.kind[number]] for number in range(count)]
        if name == "choices":
            return {
                number: (self.other[number], self.other_us[number])
                for number in range(count)
                if self.other[number] >= 0
            }
        if name == "rows":
            return {number: self.rows[number] for number in range(count) if self.rows[number] < 1.0}
        if name == "quarters":
            return {number: self.quarters[number] for number in range(count) if self.quarters[number]}
        if name == "late_us":
            return {number: self.late_us[number] for number in range(count) if self.late_us[number]}
        raise AttributeError(name)

    cpdef list engine_us(self):
        """Return the busy time of each engine."""
        cdef Vector[double] busy
        cdef int number
        busy.assign(_ENGINES, 0.0)
        for number in range(self.engine.next()):
            busy[self.engine[number]] = busy[self.engine[number]] + self.busy_us[number]
        return _listed_us(busy)

    def line_us(self):
        """Return the busy time by line and engine."""
        cdef _Spent spent = _Spent(self)
        cdef int number
        for number in range(self.engine.next()):
            spent.add(number, self.busy_us[number])
        return spent.found()


cdef class _Spent:
    """Adds time up by line and engine."""

    cdef _Operations operations
    cdef Vector[int] place  # by line and engine; -1 for none
    cdef Vector[int] keys
    cdef Vector[double] us

    def __cinit__(self, _Operations operations):
        self.operations = operations
        self.place.assign(len(operations.lines) * _ENGINES, -1)

    cdef int add(self, int number, double us) except -1:
        cdef int key = self.operations.line[number] * _ENGINES + self.operations.engine[number]
        cdef int place = self.place[key]
        if place < 0:
            place = self.place[key] = self.keys.next()
            self.keys.push_back(key)
            self.us.push_back(0.0)
        self.us[place] = self.us[place] + us
        return 0

    cdef dict found(self):
        cdef int at
        lines = list(self.operations.lines)
        return {
            (lines[self.keys[at] // _ENGINES], self.keys[at] % _ENGINES): self.us[at] for at in range(self.keys.next())
        }


cdef struct Operation:
    int engine
    double busy_us
    int line
    int name
    double rows
    int quarters
    double late_us
    int other
    double other_us
    int added  # position of the first operation that the compiler adds
    int added_count
    double added_us
    bint alone
    bint before

cdef struct Added:
    int engine
    double us

cdef struct Treatment:  # of the values of a kind
    int line
    double transfer_us
    double keeping
    int share  # of PSUM


cdef class _Space:
    """Free space, in the order of its release: pieces, each with the last reader of what was there."""

    cdef Queue[double] rooms
    cdef Queue[int] readers

    cdef int add(self, double room, int reader) except -1:
        self.rooms.push_back(room)
        self.readers.push_back(reader)
        return 0

    cdef double take(self, double size, Vector[int] &waits) except? -1.0:
        """Take ``size`` bytes of the space that was released first, after its last readers.

        Returns the number of bytes that were not available.
        """
        cdef double room
        while size > 0 and self.rooms.size():
            room = self.rooms[0]
            if self.readers[0] >= 0:
                waits.push_back(self.readers[0])
            if room > size:
                self.rooms[0] = room - size
                return 0.0
            size -= room
            self.rooms.pop_first()
            self.readers.pop_first()
        return size


cdef _Space _space(double room):
    cdef _Space made = _Space()
    made.add(room, -1)
    return made


cdef class _Order:
    """Values in the order of their last use, oldest first."""

    cdef Vector[int] before
    cdef Vector[int] after
    cdef int end

    def __cinit__(self, int values):
        self.end = values
        self.before.assign(values + 1, -1)
        self.after.assign(values + 1, -1)
        self.before[values] = self.after[values] = values

    cdef int first(self) except -1:
        """Return the oldest value; `end` if there is none."""
        return self.after[self.end]

    cdef int remove(self, int value) except -1:
        if self.after[value] >= 0:
            self.after[self.before[value]] = self.after[value]
            self.before[self.after[value]] = self.before[value]
            self.after[value] = -1
        return 0

    cdef int move_to_end(self, int value) except -1:
        self.remove(value)
        self.before[value], self.after[value] = self.before[self.end], self.end
        self.after[self.before[self.end]] = value
        self.before[self.end] = value
        return 0


cdef class _Planner:
    cdef _Events stream
    cdef _Operations operations
    cdef object model
    cdef bint eliminate_dead
    cdef bint spills
    cdef double limit
    cdef double psum_limit
    cdef double sbuf_bytes
    cdef double used
    cdef double sbuf_peak
    cdef double psum_peak
    cdef Table[Operation] executed  # operations of all sites
    cdef Table[Operation] of_costs
    cdef dict cost_numbers  # position of each cost in `of_costs`, by its identity
    cdef Vector[int] first_operation  # of each site
    cdef Vector[int] operation_count
    cdef Table[Added] added
    cdef Table[Treatment] treatments  # of each kind
    cdef Vector[Number] upcoming  # next use of each value: 2 x event, and one more for a repeat of its definition
    cdef Vector[Number] next_in  # next uses after each event, of its operands
    cdef Vector[Number] next_out  # and of its results
    cdef Vector[bint] needed
    cdef Vector[bint] resident
    cdef Vector[int] saved  # the operation that saved each value to HBM
    cdef Vector[int] maker  # the operation after which each value is in place
    cdef Vector[int] last  # the last operation that reads each value
    cdef Vector[int] earlier  # position in `readers` of a reader before the last one that may end later; -1 for none
    cdef Vector[int] readers
    cdef Vector[int] before  # for each of `readers`, the position of the one before it
    cdef Vector[int] pending  # the skipped repeat that defines each value again, if it is not in place
    cdef Vector[int] depth  # length of the chain of pending repeats
    cdef Vector[int] pinned
    cdef _Order cold
    cdef Heap warm
    cdef _Order small
    cdef Vector[double] worth
    cdef double age
    cdef Number order
    cdef _Space released
    cdef Vector[double] held  # freed bytes of loads of which other pieces are still in SBUF
    cdef double owed
    cdef list psum_released  # _Space, by share
    cdef double psum_used
    cdef int now
    cdef int nested
    cdef Vector[char] became
    cdef Vector[double] written
    cdef Vector[double] remake
    cdef Vector[double] footprint  # by site
    cdef dict spilled  # bytes saved by line, in the order of the first save
    cdef int copy
    cdef int turn
    cdef int psum_spill
    cdef int spill_save
    cdef int reload
    cdef int spill_reload
    cdef Vector[Number] counts  # of each operation
    cdef Vector[Number] saves  # of each kind
    cdef Vector[Number] reloads
    cdef Vector[Number] spill_reloads
    cdef Vector[double] spill_us  # time of a spill, of each kind; negative if it is not known yet
    cdef Vector[double] psum_us  # time of a copy from PSUM and back, as well

    def __init__(self, _Events stream, model, params, chip):
        cdef int values = stream.value_kind.next()
        self.stream, self.model, self.operations, self.cost_numbers = stream, model, _Operations(), {}
        self.eliminate_dead, self.spills = params.eliminate_dead, params.spills
        self.limit = float(chip.sbuf_bytes_per_partition - params.sbuf_reserved_bytes)
        self.psum_limit, self.sbuf_bytes = chip.psum_bytes_per_partition, chip.sbuf_bytes_per_partition
        self._read_operations()
        self._read_kinds(chip)
        self.upcoming.assign(values, END)
        self._read_backwards()
        self.upcoming.assign(values, END)
        self.resident.assign(values, False)
        self.saved.assign(values, -1)
        self.maker.assign(values, -1)
        self.last.assign(values, -1)
        self.earlier.assign(values, -1)
        self.pending.assign(values, -1)
        self.depth.assign(values, 0)
        self.pinned.assign(values, -1)
        self.cold, self.small = _Order(values), _Order(values)
        self.worth.assign(values, -1.0)
        self.released = _space(chip.sbuf_bytes_per_partition - params.sbuf_kept_bytes)
        self.held.assign(stream.events.size(), 0.0)
        self.became.assign(stream.events.size(), 0)
        self.spilled = {}
        self.now = -1

    cdef int _read_operations(self) except -1:
        """Note the operation of each cost of the sites that are executed, and the one that the compiler adds."""
        cdef _Events stream = self.stream
        cdef _Operations operations = self.operations
        cdef _Site site
        cdef Operation made
        cdef int at, line, name
        self.copy, self.turn = operations.kind_number("copy"), operations.kind_number("turn")
        self.psum_spill, self.reload = operations.kind_number("psum_spill"), operations.kind_number("reload")
        self.spill_save = operations.kind_number("spill_save")
        self.spill_reload = operations.kind_number("spill_reload")
        self.first_operation.assign(len(stream.sites), -1)
        self.operation_count.assign(len(stream.sites), 0)
        for at in range(stream.events.next()):
            self.operation_count[stream.events.at(at).site] = 1
        for site in stream.sites:
            if not self.operation_count[site.index]:
                continue
            self.first_operation[site.index] = self.executed.next()
            self.operation_count[site.index] = len(site.template.costs)
            instruction, others = site.template.instruction, site.template.other
            line, name = operations.line_number(instruction.line), operations.kind_number(instruction.op)
            for at, cost in enumerate(<list>site.template.costs):
                made = self._operation(cost)
                made.line, made.name, made.before = line, name, site.stores
                if others is not None:
                    made.other, made.other_us = INDEX[others[at].engine], others[at].busy_us
                made.alone = (
                    not made.added_count
                    and made.other < 0
                    and made.rows >= 1.0
                    and not made.quarters
                    and not made.late_us
                )
                self.executed.push_back(made)
        return 0

    cdef Operation _operation(self, cost) except *:
        """Return an operation with what follows from its cost, which instructions of equal form share."""
        cdef Operation made
        cdef Added added
        if id(cost) in self.cost_numbers:
            return self.of_costs.at(self.cost_numbers[id(cost)])
        made.engine, made.busy_us, made.rows = INDEX[cost.engine], cost.busy_us, cost.rows
        made.quarters, made.late_us, made.other, made.other_us = cost.quarters, cost.late_us, -1, 0.0
        made.added, made.added_count, made.added_us = self.added.next(), len(cost.added), cost.added_us
        made.line = made.name = made.before = made.alone = 0
        for engine, us in cost.added:
            added.engine, added.us = INDEX[engine], us
            self.added.push_back(added)
        self.cost_numbers[id(cost)] = self.of_costs.next()
        self.of_costs.push_back(made)
        return made

    cdef int _read_kinds(self, chip) except -1:
        """Note what treating values depends on, and the PSUM space that the tiles of each line rotate in."""
        cdef _Events stream = self.stream
        cdef Kind kind
        cdef Treatment made
        cdef Vector[bint] used
        cdef double rate = chip.dma_bytes_per_us
        cdef int at
        used.assign(stream.kinds.size(), False)
        for at in range(stream.value_kind.next()):
            used[stream.value_kind[at]] = True
        shares = {}
        for at in range(stream.kinds.next()):
            kind = stream.kinds.at(at)
            made.line = self.operations.line_number((<_Site>stream.sites[kind.site]).template.instruction.line)
            made.transfer_us = <double>kind.row * 128.0 / rate
            made.keeping = (made.transfer_us if kind.loaded else 2 * made.transfer_us) / (kind.bytes or 1.0)
            made.share = -1
            if kind.in_psum and used[at]:
                made.share = shares.setdefault(made.line, len(shares))
            self.treatments.push_back(made)
        banks = max(chip.psum_banks // 2, chip.psum_banks // max(1, len(shares)))
        self.psum_released = [_space(banks * chip.psum_bank_bytes) for _ in shares]
        self.counts.assign(self.executed.size(), 0)
        self.saves.assign(stream.kinds.size(), 0)
        self.reloads.assign(stream.kinds.size(), 0)
        self.spill_reloads.assign(stream.kinds.size(), 0)
        self.spill_us.assign(stream.kinds.size(), -1.0)
        self.psum_us.assign(stream.kinds.size(), -1.0)
        return 0

    cdef Kind kind(self, int value) except *:
        return self.stream.kinds.at(self.stream.value_kind[value])

    def run(self):
        """Emit all operations and return the machine."""
        cdef _Events stream = self.stream
        cdef Event event
        cdef int number, at
        for number in range(stream.events.next()):
            if not number & 0xFFFF:
                PyErr_CheckSignals()
            event = stream.events.at(number)
            if not self.eliminate_dead or self.needed[number]:
                self.now = number
                if not event.repeat:
                    self._execute(number)
                else:
                    self.became[number] = 2
                    if self._postpone(number, event) > MAX_PENDING:
                        self._execute(number)
            for at in range(event.operands):
                self._advance(stream.ins[event.ins + at], self.next_in[event.ins + at])
            for at in range(event.outs.count):
                self._advance(event.outs.first + at, self.next_out[event.results + at])
        machine = Machine(self.operations)
        self._count(machine)
        return machine

    cdef int _postpone(self, int number, Event &event) except -1:
        """Note that a repeat defines those of its values that are nowhere. Return the length of the chain of pending
        repeats, 0 if all are somewhere.
        """
        cdef int depth = 0, at, value, operand
        for value in range(event.outs.first, event.outs.first + event.outs.count):
            if self.resident[value] or self.saved[value] >= 0:
                continue
            if not depth:
                for at in range(event.operands):
                    operand = self.stream.ins[event.ins + at]
                    if not self.resident[operand]:
                        depth = max(depth, self.depth[operand])
                depth += 1
            self.pending[value] = number
            self.depth[value] = depth
        return depth

    cdef int _read_backwards(self) except -1:
        """Note the next uses of each event's operands and results, and whether its results reach a store."""
        cdef _Events stream = self.stream
        cdef Event event
        cdef Vector[bint] wanted
        cdef int number, at, value
        cdef int events = stream.events.next()
        cdef bint needed
        wanted.assign(stream.value_kind.size(), False)
        self.needed.assign(events, False)
        self.next_in.assign(stream.ins.size(), END)
        if events:
            event = stream.events.at(events - 1)
            self.next_out.assign(event.results + event.outs.count, END)
        for number in range(events - 1, -1, -1):
            event = stream.events.at(number)
            needed = not event.outs.count or (<_Site>stream.sites[event.site]).stores
            for at in range(event.operands):
                self.next_in[event.ins + at] = self.upcoming[stream.ins[event.ins + at]]
            for at in range(event.outs.count):
                value = event.outs.first + at
                self.next_out[event.results + at] = self.upcoming[value]
                needed = needed or wanted[value]
            self.needed[number] = needed
            for at in range(event.operands):
                value = stream.ins[event.ins + at]
                self.upcoming[value] = 2 * <Number>number
                if needed:
                    wanted[value] = True
            if event.repeat:
                for value in range(event.outs.first, event.outs.first + event.outs.count):
                    self.upcoming[value] = 2 * <Number>number + 1
        return 0

    cdef int _execute(self, int number) except -1:
        """Emit the event's operation, after operations that bring its operands back."""
        cdef Event event = self.stream.events.at(number)
        cdef Vector[int] waits
        cdef Vector[Py_ssize_t] dying  # by the number of pieces before each
        cdef int at, value, operation, made, reader, now = self.now
        cdef Py_ssize_t pieces
        cdef Kind kind
        self.nested += 1
        if self.nested > _DEEPEST:
            raise RecursionError("too many postponed executions depend on each other")
        self.became[number] = 1
        if not 0 <= event.variant < self.operation_count[event.site]:
            raise IndexError("an execution without a cost")
        operation = self.first_operation[event.site] + event.variant
        waits.reserve(event.operands + event.overwrites + event.outs.count + 4)
        for at in range(event.operands):
            self.pinned[self.stream.ins[event.ins + at]] = now
        for at in range(event.operands):
            value = self.stream.ins[event.ins + at]
            if not self.resident[value]:
                self._bring_back(value, self.executed.at(operation).line)
            waits.push_back(self.maker[value])
        for at in range(event.overwrites):  # a buffer's readers are done before it is written again
            value = self.stream.replaced[event.replaced + at]
            waits.push_back(self.last[value])
            reader = self.earlier[value]
            while reader >= 0:
                waits.push_back(self.readers[reader])
                reader = self.before[reader]
        if number == now:  # the space of operands without a further use is reused in place
            for at in range(event.operands):
                value = self.stream.ins[event.ins + at]
                if self.next_in[event.ins + at] == END and self.resident[value]:
                    pieces = self.released.readers.pushed()
                    self._release(value, self.last[value])
                    if self.kind(value).loaded and self.released.readers.pushed() > pieces:
                        dying.push_back(pieces)
        for value in range(event.outs.first, event.outs.first + event.outs.count):
            if not self.resident[value]:
                self.pinned[value] = now
                kind = self.kind(value)
                if kind.in_sbuf:
                    self._allocate(value, waits)
                elif kind.in_psum:
                    self._allocate_psum(value, waits, self.executed.at(operation).line)
                else:
                    self.resident[value] = True
            self.pending[value] = -1
            self.depth[value] = 0
        made = self._emit(operation, waits)
        for at in range(dying.next()):  # the next user of that space waits for this reader
            pieces = dying[at]
            if pieces >= self.released.readers.popped():
                self.released.readers[pieces - self.released.readers.popped()] = made
        for at in range(event.operands):
            value = self.stream.ins[event.ins + at]
            reader = self.last[value]
            if reader >= 0 and reader != self.maker[value] and (
                self.operations.engine[reader] != self.operations.engine[made] or self.operations.engine[made] == _DMA
            ):
                self.readers.push_back(reader)
                self.before.push_back(self.earlier[value])
                self.earlier[value] = self.readers.next() - 1
            self.last[value] = made
            if number != now:
                self._settle(value)
        for value in range(event.outs.first, event.outs.first + event.outs.count):
            self.maker[value] = self.last[value] = made
            self.saved[value] = -1
        self.nested -= 1
        return 0

    cdef int _emit(self, int number, Vector[int] &waits) except -1:
        """Emit an operation, and the one that the compiler adds. Return the number after which its results are ready."""
        cdef _Operations operations = self.operations
        cdef Operation operation = self.executed.at(number)
        cdef Vector[int] before
        cdef Added added
        cdef int at, made
        self.counts[number] = self.counts[number] + 1
        if not operation.before or not operation.added_count:
            made = operations.add(operation.engine, operation.busy_us, waits, operation.line, operation.name)
        else:
            before = waits
            for at in range(operation.added_count):
                added = self.added.at(operation.added + at)
                made = operations.add(added.engine, added.us, before, operation.line, self.turn)
                before.assign(1, made)
            made = operations.add(operation.engine, operation.busy_us, before, operation.line, operation.name)
        if operation.alone:
            return made
        if operation.rows < 1.0:
            operations.rows[made] = operation.rows
        operations.quarters[made], operations.late_us[made] = operation.quarters, operation.late_us
        operations.other[made], operations.other_us[made] = operation.other, operation.other_us
        if not operation.before:
            for at in range(operation.added_count):
                added = self.added.at(operation.added + at)
                before.assign(1, made)
                made = operations.add(added.engine, added.us, before, operation.line, self.copy)
        return made

    cdef int _count(self, machine) except -1:
        """Add up the bytes and work of the operations."""
        cdef _Site site
        cdef int at
        flops = transpose_flops = passes = transfers = 0
        hbm_read = hbm_write = sbuf_read = sbuf_write = psum_read = psum_write = saved = reloaded = 0
        for site in self.stream.sites:
            for at, cost in enumerate(site.template.costs if self.operation_count[site.index] else ()):
                count = self.counts[self.first_operation[site.index] + at]
                flops += cost.flops * count
                transpose_flops += cost.transpose_flops * count
                passes += cost.passes * count
                here = site.template.traffic
                sbuf_read += here[0] * count
                sbuf_write += here[1] * count
                psum_read += here[2] * count
                psum_write += here[3] * count
                moved = cost.bytes_moved * count
                if not moved:
                    continue
                transfers += count
                if site.stores:
                    hbm_write += moved
                    sbuf_read += moved
                else:
                    hbm_read += moved
                    sbuf_write += moved
        for at in range(self.saves.next()):
            saves, reloads, spill_reloads = self.saves[at], self.reloads[at], self.spill_reloads[at]
            if not saves + reloads + spill_reloads:
                continue
            rows, row = self._rows(at)
            size = rows * row
            transfers += saves + reloads + spill_reloads
            hbm_write += size * saves
            sbuf_read += size * saves
            saved += size * saves
            if saves:
                self.spilled[self._line(at)] += size * saves
            hbm_read += size * (reloads + spill_reloads)
            sbuf_write += size * (reloads + spill_reloads)
            reloaded += size * spill_reloads
        machine.flops, machine.transpose_flops, machine.passes = flops, transpose_flops, passes
        machine.transfers, machine.hbm_read_bytes, machine.hbm_write_bytes = transfers, hbm_read, hbm_write
        machine.sbuf_read_bytes, machine.sbuf_write_bytes = sbuf_read, sbuf_write
        machine.psum_read_bytes, machine.psum_write_bytes = psum_read, psum_write
        machine.spill_save_bytes, machine.spill_reload_bytes, machine.spilled_lines = saved, reloaded, self.spilled
        machine.sbuf_peak, machine.psum_peak = self.sbuf_peak, self.psum_peak
        machine.dropped = self._dropped()
        became = bytearray(self.became.size())
        for at in range(self.became.next()):
            became[at] = self.became[at]
        machine.became = became
        return 0

    cdef tuple _dropped(self):
        """Return the numbers of the executed instructions whose results never reach a store."""
        cdef Vector[bint] kept
        cdef Event event
        cdef _Site site
        cdef int number
        if not self.eliminate_dead:
            return ()
        kept.assign(len(self.stream.sites), False)
        for number in range(self.stream.events.next()):
            if self.needed[number]:
                kept[self.stream.events.at(number).site] = True
        return tuple(
            sorted([
                site.number
                for site in self.stream.sites
                if self.operation_count[site.index] and not kept[site.index]
            ])
        )

    cdef int _advance(self, int value, Number after) except -1:
        """Record a value's next use after an event, and free it without one."""
        cdef Kind kind
        self.upcoming[value] = after
        if self.resident[value]:
            kind = self.kind(value)
            if after == END or (after & 1 and kind.in_psum):
                self._release(value, self.last[value])
            elif kind.in_sbuf:
                self._touch(value, after & 1)
        return 0

    cdef int _settle(self, int value) except -1:
        """Free a value without further use, and record when another was used."""
        return self._advance(value, self.upcoming[value])

    cdef int _touch(self, int value, bint repeated) except -1:
        """Record a use. A value's worth depends on the age of its last use and on the cost to restore it."""
        cdef Kind kind = self.kind(value)
        cdef Entry entry
        cdef double worth
        if kind.bytes < SMALL_BYTES:
            return self.small.move_to_end(value)
        if repeated and kind.loaded:
            self.worth[value] = -1.0
            return self.cold.move_to_end(value)
        self.cold.remove(value)
        worth = self.age
        worth += self._cost_to_remake(value) / kind.bytes if repeated else self._treatment(value).keeping
        if worth != self.worth[value]:  # otherwise its entry is in the heap
            self.worth[value] = worth
            self.order += 1
            entry.worth, entry.order, entry.value = worth, self.order, value
            self.warm.push(entry)
        return 0

    cdef Treatment _treatment(self, int value) except *:
        return self.treatments.at(self.stream.value_kind[value])

    cdef bint _hopeless(self, int value) except -1:
        """Return True if more is written before the value's next use than SBUF has room for."""
        cdef double written
        if not self.written.size():
            self._add_written()
        written = self.written[self.upcoming[value] >> 1] - self.written[self.now]
        return written > HOPELESS * self.limit

    cdef int _add_written(self) except -1:
        """Note the bytes of a partition that the kernel writes into SBUF before each event."""
        cdef Event event
        cdef Kind kind
        cdef double total = 0.0
        cdef int number, value
        for number in range(self.stream.events.next()):
            self.written.push_back(total)
            event = self.stream.events.at(number)
            for value in range(event.outs.first, event.outs.first + event.outs.count):
                kind = self.kind(value)
                if kind.in_sbuf:
                    total += kind.bytes
        return 0

    cdef double _cost_to_remake(self, int value) except? -1.0:
        """Return the microseconds to bring back a dropped value that the kernel computes again."""
        cdef double transfer = self._treatment(value).transfer_us
        if self._hopeless(value):
            return transfer
        if not self.remake.size():
            self._add_remake()
        if self._computed_again(value):
            return self.remake[value]
        return min(self.remake[value], 2 * transfer)

    cdef int _add_remake(self) except -1:
        """Note the time to compute or load each value once more, including the loads and PSUM values it needs."""
        cdef Event event
        cdef Kind kind
        cdef double total
        cdef Operation operation
        cdef int number, at, value
        self.remake.assign(self.stream.value_kind.size(), 0.0)
        for number in range(self.stream.events.next()):
            event = self.stream.events.at(number)
            if event.repeat or not event.outs.count:
                continue
            operation = self.executed.at(self.first_operation[event.site] + event.variant)
            total = operation.busy_us + operation.added_us
            for at in range(event.operands):
                value = self.stream.ins[event.ins + at]
                kind = self.kind(value)
                if kind.loaded or kind.in_psum:
                    total += self.remake[value]
            for value in range(event.outs.first, event.outs.first + event.outs.count):
                self.remake[value] = total / event.outs.count
        return 0

    cdef int _release(self, int value, int operation) except -1:
        cdef Kind kind = self.kind(value)
        self.resident[value] = False
        if kind.in_sbuf:
            if kind.bytes < SMALL_BYTES:
                self.small.remove(value)
            else:
                self.cold.remove(value)
                self.worth[value] = -1.0
            self.used -= kind.bytes
            self._give_back(value, kind.bytes, operation)
        elif kind.in_psum:
            self.psum_used -= kind.bytes
            (<_Space>self.psum_released[self._treatment(value).share]).add(kind.bytes, operation)
        return 0

    cdef int _give_back(self, int value, double size, int operation) except -1:
        """Free space. A load's pieces are freed together, when the last of them is out."""
        cdef Values pieces
        cdef double paid
        cdef int event = self.stream.value_event[value], other
        if self.kind(value).loaded:
            pieces = self.stream.events.at(event).outs
            if pieces.count > 1:
                size += self.held[event]
                self.held[event] = 0.0
                for other in range(pieces.first, pieces.first + pieces.count):
                    if self.resident[other]:
                        self.held[event] = size
                        return 0
        if self.owed:
            paid = min(size, self.owed)
            self.owed -= paid
            size -= paid
        if size:
            self.released.add(size, operation)
        return 0

    cdef int _allocate_psum(self, int value, Vector[int] &waits, int line) except -1:
        """Take space in PSUM. If none is left, a value there is copied to SBUF and later back."""
        cdef Kind kind = self.kind(value)
        cdef int number = self.stream.value_kind[value]
        self.psum_used += kind.bytes
        if self.psum_used > self.psum_limit:
            if self.psum_us[number] < 0:
                self.psum_us[number] = 2 * self.model.copy_us(kind.row // 4)
            waits.push_back(self.operations.add(_VECTOR, self.psum_us[number], waits, line, self.psum_spill))
        self.resident[value] = True
        self.psum_peak = max(self.psum_peak, self.psum_used)
        (<_Space>self.psum_released[self.treatments.at(number).share]).take(kind.bytes, waits)
        return 0

    cdef int _allocate(self, int value, Vector[int] &waits) except -1:
        cdef double size = self.kind(value).bytes
        if self.spills:
            while self.used + size > self.limit and self._evict():
                pass
        self.used += size
        self.resident[value] = True
        self.sbuf_peak = max(self.sbuf_peak, self.used)
        self.owed += self.released.take(size, waits)
        return 0

    cdef bint _evict(self) except -1:
        """Drop one value. Return False if the current event uses all of them."""
        cdef Table[Entry] held
        cdef Entry entry
        cdef int value = self.cold.first(), at
        cdef bint found = False
        while value != self.cold.end:
            if self.pinned[value] != self.now:
                self._drop(value)
                return True
            value = self.cold.after[value]
        while not found and not self.warm.empty():
            entry = self.warm.pop_least()
            value = entry.value
            if not self.resident[value] or self.worth[value] != entry.worth:
                continue
            if self.pinned[value] == self.now:
                held.push_back(entry)
                continue
            self.age = entry.worth
            self._drop(value)
            found = True
        for at in range(held.next()):
            self.warm.push(held.at(at))
        if found:
            return True
        value = self.small.first()
        while value != self.small.end:
            if self.pinned[value] != self.now:
                self._drop(value)
                return True
            value = self.small.after[value]
        return False

    cdef int _drop(self, int value) except -1:
        cdef bint again = self.upcoming[value] & 1
        if not self.kind(value).loaded and self.saved[value] < 0 and not (again and self._computed_again(value)):
            self._save(value)
        return self._release(value, max(self.last[value], self.saved[value]))

    cdef bint _computed_again(self, int value) except -1:
        """Return True if a repeated value is computed again and not spilled, because all values of its line do not fit
        SBUF.
        """
        cdef _Site site = self.stream.sites[self.kind(value).site]
        if not self.footprint.size():
            self._add_footprint()
        return not site.sequential and self.footprint[site.index] > self.sbuf_bytes

    cdef int _add_footprint(self) except -1:
        """Note the bytes of a partition that the distinct values of each site take."""
        cdef Event event
        cdef double total
        cdef int number, value
        self.footprint.assign(len(self.stream.sites), 0.0)
        for number in range(self.stream.events.next()):
            event = self.stream.events.at(number)
            if not event.repeat:
                total = 0.0
                for value in range(event.outs.first, event.outs.first + event.outs.count):
                    total += self.kind(value).bytes
                self.footprint[event.site] = self.footprint[event.site] + total
        return 0

    def _rows(self, int kind):
        """Return the rows of a value of a kind, and the bytes of each."""
        template = (<_Site>self.stream.sites[self.stream.kinds.at(kind).site]).template
        return template.instruction.dsts[0].dims[0].count, self.stream.kinds.at(kind).row

    cdef double _spill_us(self, int kind) except? -1.0:
        """Return the time of a transfer of a value of a kind."""
        if self.spill_us[kind] < 0:
            rows, row = self._rows(kind)
            self.spill_us[kind] = self.model.transfer_us(rows, row)
        return self.spill_us[kind]

    def _line(self, int kind):
        return (<_Site>self.stream.sites[self.stream.kinds.at(kind).site]).template.instruction.line

    cdef int _save(self, int value) except -1:
        cdef int kind = self.stream.value_kind[value], line = self.treatments.at(kind).line
        cdef Vector[int] waits
        waits.push_back(self.maker[value])
        self.saved[value] = self.operations.add(_DMA, self._spill_us(kind), waits, line, self.spill_save)
        if not self.saves[kind]:
            self.spilled.setdefault(self._line(kind), 0)
        self.saves[kind] = self.saves[kind] + 1
        return 0

    cdef int _bring_back(self, int value, int line) except -1:
        cdef Vector[int] waits
        cdef Event event
        cdef double busy
        cdef int kind = self.stream.value_kind[value], name = self.reload
        if self.pending[value] >= 0:
            return self._execute(self.pending[value])
        if not self.stream.kinds.at(kind).in_sbuf:
            return 0
        self._allocate(value, waits)
        if self.stream.kinds.at(kind).loaded:  # with the row length of the load it was part of
            event = self.stream.events.at(self.stream.value_event[value])
            busy = self.executed.at(self.first_operation[event.site] + event.variant).busy_us / event.outs.count
            self.reloads[kind] = self.reloads[kind] + 1
        else:
            busy = self._spill_us(kind)
            name = self.spill_reload
            waits.push_back(self.saved[value])
            self.spill_reloads[kind] = self.spill_reloads[kind] + 1
        self.maker[value] = self.last[value] = self.operations.add(_DMA, busy, waits, line, name)
        return 0


# Schedule: acceld.nki.timing.list_schedule

cdef double SHORTEST_GAP_US = list_schedule.SHORTEST_GAP_US
cdef size_t MOST_GAPS = list_schedule.MOST_GAPS

cdef struct Gap:
    double low
    double high
    Number made  # position in its engine's queue
    int before  # the operation before it

cdef struct Transfer:
    double begin
    double done
    int why

cdef struct Choice:
    int engine
    double us


cdef class _Gaps:
    """The latest gaps of an engine."""

    cdef Table[Gap] gaps


class Schedule(list_schedule.Schedule):
    """A schedule whose lists are made when they are first read."""

    __slots__ = ("times",)

    def __init__(self, times):
        object.__setattr__(self, "times", times)

    def __getattr__(self, name):
        found = self.times.listed(name)
        object.__setattr__(self, name, found)
        return found

    def path_us(self, machine):
        return self.times.path_us()

    def use_of(self, machine, engine):
        return self.times.use_of(engine)

    def before_us(self, machine, number):
        return self.times.before_us(number)


def schedule(machine, params, chip, not_before=None):
    """Compute the start and end of every operation of ``machine``."""
    cdef _Operations operations = machine.operations if isinstance(machine, Machine) else _Operations.of(machine)
    cdef _Times times = _Times(operations, params, chip, not_before or {})
    times.run()
    if times.moved:
        machine.engine, machine.busy_us = operations.listed("engine"), operations.listed("busy_us")
    return Schedule(times)


cdef class _Times:
    """Start and end of each operation, and the operation it waited for last."""

    cdef _Operations operations
    cdef bint alternates
    cdef double semaphore
    cdef double half_use
    cdef double ramp
    cdef double dma_latency
    cdef Number window
    cdef Map[double] held
    cdef bint holds
    cdef Vector[double] start
    cdef Vector[double] end
    cdef Vector[int] cause
    cdef double total_us
    cdef double throttled
    cdef bint moved  # some operations run on the other engine
    cdef Vector[double] tail  # of each engine, then of each queue of DMA engines
    cdef Vector[int] tail_op
    cdef list gaps  # _Gaps
    cdef Vector[Number] issued
    cdef Vector[int] server
    cdef dict queues  # by the quarters in use

    def __init__(self, _Operations operations, params, chip, not_before):
        cdef int bits
        self.operations, self.alternates = operations, params.alternates_copies
        self.semaphore, self.window, self.half_use = params.semaphore_us, params.window, params.half_use
        self.ramp, self.dma_latency = chip.tensor_ramp_us, params.dma_latency_us
        self.holds = bool(not_before)
        for number, us in not_before.items():
            self.held.put(number, us)
        self.start.assign(operations.engine.size(), 0.0)
        self.end.assign(operations.engine.size(), 0.0)
        self.cause.assign(operations.engine.size(), -1)
        for engine in range(_ENGINES):
            self.server.push_back(engine)
        if params.shared_sbuf_port:
            self.server[_GPSIMD] = _VECTOR
        used = {bits: bits for bits in set(_listed(operations.quarters)) if bits}
        self.queues = list_schedule._queues(used, _ENGINES)
        count = max(map(max, self.queues.values())) + 1
        self.tail.assign(count, 0.0)
        self.tail_op.assign(count, -1)
        self.gaps = [_Gaps() for _ in range(count)]
        self.issued.assign(count, 0)

    cdef int run(self) except -1:
        """Schedule every operation."""
        cdef _Operations operations = self.operations
        cdef Vector[double] load
        cdef Choice there
        cdef double busy, ready, when, use = 0.0, use_until = 0.0, weight, begin, last, at, done
        cdef int number, engine, why, wait, busiest, port, position
        cdef Py_ssize_t place, first = 0
        cdef Number sequence
        cdef _Gaps holes
        cdef Gap gap
        load.assign(_ENGINES, 0.0)
        busiest = self._busiest()
        for number in range(operations.engine.next()):
            if not number & 0xFFFF:
                PyErr_CheckSignals()
            engine, busy = operations.engine[number], operations.busy_us[number]
            ready, why = 0.0, -1
            for place in range(first, operations.ends[number]):
                wait = operations.waits[place]
                if wait >= 0:
                    when = self.end[wait]
                    if operations.engine[wait] != engine:
                        when += self.semaphore
                    if when > ready:
                        ready, why = when, wait
            first = operations.ends[number]
            if self.holds and self.held.get(number, when) and when > ready:
                ready, why = when, -1
            if operations.other[number] >= 0 and (self.alternates or engine == busiest):
                there.engine, there.us = operations.other[number], operations.other_us[number]
                if load[engine] + busy > load[there.engine] + there.us and self._sooner(engine, busy, there, ready):
                    engine, busy = there.engine, there.us
                    operations.engine[number], operations.busy_us[number] = engine, busy
                    self.moved = True
            load[engine] = load[engine] + busy
            if engine == _DMA:
                self._transfer(number, busy, ready, why)
                continue
            port = self.server[engine]
            sequence = self._issue(port)
            if engine == _TENSOR and self.ramp and busy:
                at = max(ready, self.tail[port])
                if at > use_until:
                    use *= exp((use_until - at) / self.ramp)
                if use < self.half_use:
                    self.throttled += busy
                    busy *= 2
                weight = operations.rows[number]
                use = weight + (use - weight) * exp(-busy / self.ramp)
                use_until = at + busy
            last = self.tail[port]
            holes = <_Gaps>self.gaps[port]
            position = _fitting(holes, ready, busy) if ready < last else -1
            if position >= 0:
                gap = holes.gaps.at(position)
                begin = max(ready, gap.low)
                if begin == gap.low and gap.low > 0:
                    why = gap.before
                done = begin + busy
                _replace(holes, position, begin, done, number)
            else:
                if ready > last:
                    begin = ready
                    if ready - last > SHORTEST_GAP_US:
                        _note(holes, last, ready, sequence, self.tail_op[port])
                else:
                    begin, why = last, self.tail_op[port]
                done = begin + busy
                self.tail[port] = done
                self.tail_op[port] = number
            self.start[number] = begin
            self.end[number] = done
            self.cause[number] = why
        for number in range(self.end.next()):
            self.total_us = max(self.total_us, self.end[number])
        return 0

    cdef bint _sooner(self, int engine, double busy, Choice there, double ready) except -1:
        """Return True if the other engine is done with an operation before its usual engine."""
        cdef int usual = self.server[engine], second = self.server[there.engine]
        cdef double here = _earliest(<_Gaps>self.gaps[usual], self.tail[usual], ready, busy)
        if here <= ready:
            return False
        return _earliest(<_Gaps>self.gaps[second], self.tail[second], ready, there.us) + there.us < here + busy

    cdef Number _issue(self, int port) except -1:
        """Return an operation's position in a queue. Gaps beyond the window are dropped."""
        cdef Number sequence = self.issued[port]
        cdef _Gaps holes = self.gaps[port]
        self.issued[port] = sequence + 1
        while holes.gaps.size() and holes.gaps.at(0).made < sequence - self.window:
            holes.gaps.remove_at(0)
        return sequence

    cdef int _transfer(self, int number, double busy, double ready, int why) except -1:
        """Schedule a transfer on the DMA engines it uses."""
        cdef int reason = why, queue
        cdef double first = -1.0, finish = -1.0, last
        cdef _Gaps holes
        cdef Number sequence
        cdef Transfer one
        for queue in <tuple>self.queues[self.operations.quarters[number]]:
            holes, last = self.gaps[queue], self.tail[queue]
            sequence = self._issue(queue)
            if ready > last:
                one.begin, one.done, one.why = ready, ready + busy, why
                if ready - last > SHORTEST_GAP_US:
                    _note(holes, last, ready, sequence, self.tail_op[queue])
            elif ready < last and holes.gaps.size():
                one = _interleave(holes, ready, busy, last, why)
            else:
                one.begin, one.done, one.why = last, last + busy, self.tail_op[queue]
            if one.done > last:
                self.tail[queue], self.tail_op[queue] = one.done, number
            if one.done > finish:
                finish, reason = one.done, one.why
            first = one.begin if first < 0 else min(first, one.begin)
        self.start[number], self.cause[number] = first, reason
        self.end[number] = finish + self.dma_latency + self.operations.late_us[number]
        return 0

    cdef int _busiest(self) except -1:
        """Return the engine that has more work than any other."""
        work = self.operations.engine_us()
        return work.index(max(work))

    def listed(self, str name):
        """Return a field of :class:`list_schedule.Schedule` by its name."""
        if name == "start_us":
            return _listed_us(self.start)
        if name == "end_us":
            return _listed_us(self.end)
        if name == "cause":
            return _listed(self.cause)
        if name == "total_us":
            return self.total_us
        if name == "throttled_us":
            return self.throttled
        raise AttributeError(name)

    def path_us(self):
        """Return the time on the chain of operations that ends last, by line and engine."""
        cdef _Spent spent = _Spent(self.operations)
        cdef double until = 0.0, begin
        cdef int at = -1, number
        for number in range(self.end.next()):
            if at < 0 or self.end[number] > until:
                until, at = self.end[number], number
        while at >= 0:
            begin = self.start[at]
            spent.add(at, until - begin if begin < until else 0.0)
            until = min(until, begin)
            at = self.cause[at]
        return spent.found()

    def use_of(self, int engine):
        """Return when an engine works and what it waits for; None if no operation runs on it."""
        cdef _Operations operations = self.operations
        cdef Vector[int] numbers
        cdef Map[int] places
        cdef Vector[Number] keys
        cdef Vector[double] us
        cdef double begin, free, idle = 0.0, gap
        cdef int at, number, cause, place = 0
        cdef Number key, lines = len(operations.lines)
        for number in range(operations.engine.next()):
            if operations.engine[number] == engine:
                numbers.push_back(number)
        if not numbers.size():
            return None
        sort_by(numbers, self.start)
        begin = free = self.start[numbers[0]]
        for at in range(numbers.next()):
            number = numbers[at]
            gap, cause = self.start[number] - free, self.cause[number]
            if gap > 0.0:
                idle += gap
                if cause >= 0:
                    key = operations.line[number] * lines + operations.line[cause]
                    key = key * _ENGINES + operations.engine[cause]
                    if not places.get(key, place):
                        place = us.next()
                        places.put(key, place)
                        keys.push_back(key)
                        us.push_back(0.0)
                    us[place] = us[place] + gap
            free = max(free, self.end[number])
        named = list(operations.lines)
        waits = {}
        for at in range(keys.next()):
            key = keys[at] // _ENGINES
            waits[named[key // lines], named[key % lines], keys[at] % _ENGINES] = us[at]
        return list_schedule.Use(numbers[0], begin, free, idle, waits)

    def before_us(self, int number):
        """Return the time in the chain of operations for which an operation waits, by line and engine."""
        cdef _Spent spent = _Spent(self.operations)
        cdef double until = self.start[number], begin
        cdef int at = self.cause[number]
        while at >= 0:
            begin = min(until, self.start[at])
            spent.add(at, until - begin)
            until, at = begin, self.cause[at]
        return spent.found()


cdef int _note(_Gaps holes, double low, double high, Number made, int before) except -1:
    """Add the latest gap, and drop the oldest if there are too many."""
    cdef Gap gap
    gap.low, gap.high, gap.made, gap.before = low, high, made, before
    holes.gaps.push_back(gap)
    if holes.gaps.size() > MOST_GAPS:
        holes.gaps.remove_at(0)
    return 0


cdef int _fitting(_Gaps holes, double ready, double busy) except -2:
    """Return the first gap in which an operation fits; -1 for none.

    The search runs backwards, because most gaps end before an operation is ready.
    """
    cdef int count = holes.gaps.next(), position
    position = count
    while position and holes.gaps.at(position - 1).high >= ready:
        position -= 1
    while position < count:
        if holes.gaps.at(position).high - max(holes.gaps.at(position).low, ready) >= busy:
            return position
        position += 1
    return -1


cdef double _earliest(_Gaps holes, double last, double ready, double busy) except? -1.0:
    """Return the earliest start of an operation on an engine."""
    cdef int position
    if ready < last:
        position = _fitting(holes, ready, busy)
        return max(ready, holes.gaps.at(position).low) if position >= 0 else last
    return ready


cdef Transfer _interleave(_Gaps holes, double ready, double busy, double last, int why) except *:
    """Return begin, end and cause of a transfer. It uses the gaps from ``ready`` on; its remaining part runs after
    ``last``.
    """
    cdef Table[Gap] later
    cdef Gap gap
    cdef Transfer found
    cdef double left = busy, at, used
    while holes.gaps.size() and holes.gaps.at(holes.gaps.next() - 1).high > ready:
        later.push_back(holes.gaps.pop_last())
    found.begin, found.done, found.why = -1.0, 0.0, why
    while later.size() and (left > 0 or found.begin < 0):
        gap = later.pop_last()
        at = max(ready, gap.low)
        if found.begin < 0:
            found.begin = at
            if at == gap.low:
                found.why = gap.before
        if at - gap.low > SHORTEST_GAP_US:
            _note_part(holes, gap, gap.low, at)
        used = min(left, gap.high - at)
        left -= used
        found.done = at + used
        if gap.high - found.done > SHORTEST_GAP_US:
            _note_part(holes, gap, found.done, gap.high)
    while later.size():
        holes.gaps.push_back(later.pop_last())
    if holes.gaps.size() > MOST_GAPS:
        holes.gaps.pop_last()
    if left > 0 or found.begin < 0:
        found.begin = last if found.begin < 0 else found.begin
        found.done = last + left
    return found


cdef int _note_part(_Gaps holes, Gap gap, double low, double high) except -1:
    """Add a part of a gap."""
    gap.low, gap.high = low, high
    holes.gaps.push_back(gap)
    return 0


cdef int _replace(_Gaps holes, int position, double begin, double done, int number) except -1:
    """Replace a gap by its parts on either side of an operation."""
    cdef Gap before = holes.gaps.at(position), after = holes.gaps.at(position)
    before.high = begin
    after.low, after.before = done, number
    holes.gaps.remove_at(position)
    if after.high - after.low > SHORTEST_GAP_US:
        holes.gaps.insert_at(position, after)
    if before.high - before.low > SHORTEST_GAP_US and holes.gaps.size() < MOST_GAPS:
        holes.gaps.insert_at(position, before)
    return 0
