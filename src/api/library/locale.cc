// In place of libstdc++'s locales, of which yaml-cpp's streams use the classic one, and of that the facets of characters and of
// integers (the version in a directive, lines in messages): libstdc++'s installs those of time, money, messages and collation, and
// all of wide characters, 300 KiB that nothing uses; its facets of numbers are 32 KiB. What it defines elsewhere is declared in
// <locale> as private members, so this is written for the versions whose members are known.
#include <locale>

#if defined(__GLIBCXX__) && _GLIBCXX_RELEASE == 12

#include <new>

namespace std {
namespace {

template <typename T>
union Room {
  alignas(T) char bytes[sizeof(T)];
};

// What nothing asks for.
using In = istreambuf_iterator<char>;
using Out = ostreambuf_iterator<char>;
In refused(In in, ios_base::iostate& error) {
  error |= ios_base::failbit;
  return in;
}

// Decimal integers of up to 18 digits. The facets are never destroyed: a destructor would need libstdc++'s, and with them all that
// they read and write.
class Reader final : public num_get<char> {
 public:
  Reader() : num_get<char>(1) {}
  ~Reader() override { __builtin_unreachable(); }

 private:
  In do_get(In in, In end, ios_base&, ios_base::iostate& error, long& value) const override {
    const bool negative = in != end && *in == '-';
    if (negative) ++in;
    int digits = 0;
    long sum = 0;
    for (; in != end && *in >= '0' && *in <= '9' && digits < 18; ++in, ++digits) sum = 10 * sum + (*in - '0');
    if (in == end) error |= ios_base::eofbit;
    const bool is_longer = in != end && *in >= '0' && *in <= '9';
    if (digits == 0 || is_longer) error |= ios_base::failbit;
    value = digits == 0 || is_longer ? 0 : negative ? -sum : sum;
    return in;
  }
  In do_get(In in, In, ios_base&, ios_base::iostate& error, bool&) const override { return refused(in, error); }
  In do_get(In in, In, ios_base&, ios_base::iostate& error, unsigned short&) const override { return refused(in, error); }
  In do_get(In in, In, ios_base&, ios_base::iostate& error, unsigned&) const override { return refused(in, error); }
  In do_get(In in, In, ios_base&, ios_base::iostate& error, unsigned long&) const override { return refused(in, error); }
  In do_get(In in, In, ios_base&, ios_base::iostate& error, long long&) const override { return refused(in, error); }
  In do_get(In in, In, ios_base&, ios_base::iostate& error, unsigned long long&) const override { return refused(in, error); }
  In do_get(In in, In, ios_base&, ios_base::iostate& error, float&) const override { return refused(in, error); }
  In do_get(In in, In, ios_base&, ios_base::iostate& error, double&) const override { return refused(in, error); }
  In do_get(In in, In, ios_base&, ios_base::iostate& error, long double&) const override { return refused(in, error); }
  In do_get(In in, In, ios_base&, ios_base::iostate& error, void*&) const override { return refused(in, error); }
};

Out written(Out out, unsigned long value, bool negative) {
  char digits[24];
  char* const end = digits + sizeof digits;
  char* at = end;
  do {
    *--at = static_cast<char>('0' + value % 10);
  } while ((value /= 10) != 0);
  if (negative) *--at = '-';
  for (; at != end; ++at) *out++ = *at;
  return out;
}

// Integers in decimal, whatever width and base the stream has.
class Writer final : public num_put<char> {
 public:
  Writer() : num_put<char>(1) {}
  ~Writer() override { __builtin_unreachable(); }

 private:
  Out do_put(Out out, ios_base&, char, bool value) const override { return written(out, value, false); }
  Out do_put(Out out, ios_base&, char, long value) const override {
    return written(out, value < 0 ? 0 - static_cast<unsigned long>(value) : static_cast<unsigned long>(value), value < 0);
  }
  Out do_put(Out out, ios_base&, char, unsigned long value) const override { return written(out, value, false); }
  Out do_put(Out out, ios_base& stream, char fill, long long value) const override {
    return do_put(out, stream, fill, static_cast<long>(value));
  }
  Out do_put(Out out, ios_base&, char, unsigned long long value) const override { return written(out, value, false); }
  Out do_put(Out out, ios_base&, char, double) const override { return out; }
  Out do_put(Out out, ios_base&, char, long double) const override { return out; }
  Out do_put(Out out, ios_base&, char, const void*) const override { return out; }
};

constexpr size_t kFacets =
    _GLIBCXX_NUM_FACETS + _GLIBCXX_NUM_UNICODE_FACETS + (_GLIBCXX_USE_DUAL_ABI ? _GLIBCXX_NUM_CXX11_FACETS : 0) + 16;
// Never destroyed: streams may be used until the process ends.
const locale::facet* g_facets[kFacets];
const locale::facet* g_caches[kFacets];
char g_name[] = "C";
char* g_names[6 + _GLIBCXX_NUM_CATEGORIES] = {g_name};
Room<ctype<char>> g_ctype;
Room<codecvt<char, char, mbstate_t>> g_codecvt;
Room<Reader> g_num_get;
Room<Writer> g_num_put;

}  // namespace

// Number 0 ends each list: the classic locale is never changed, and no other is made.
const locale::id* const locale::_S_twinned_facets[] = {nullptr};
const locale::id* const* const locale::_Impl::_S_facet_categories[] = {nullptr};

locale::_Impl::_Impl(size_t refs) throw()
    : _M_refcount(static_cast<_Atomic_word>(refs)),
      _M_facets(g_facets),
      _M_facets_size(kFacets),
      _M_caches(g_caches),
      _M_names(g_names) {
  _M_init_facet_unchecked(new (&g_ctype) std::ctype<char>(nullptr, false, 1));
  _M_init_facet_unchecked(new (&g_codecvt) codecvt<char, char, mbstate_t>(1));
  _M_init_facet_unchecked(static_cast<num_get<char>*>(new (&g_num_get) Reader));
  _M_init_facet_unchecked(static_cast<num_put<char>*>(new (&g_num_put) Writer));
}

void locale::_S_initialize_once() throw() {
  static Room<_Impl> room;
  _S_classic = new (&room) _Impl(2);
  _S_global = _S_classic;
}

void locale::_S_initialize() {
  static const bool done = (_S_initialize_once(), true);
  (void)done;
}

locale::locale() throw() : _M_impl(nullptr) {
  _S_initialize();
  _M_impl = _S_classic;
}

const locale& locale::classic() {
  static Room<locale> room;
  static const locale* const classic = new (&room) locale;
  return *classic;
}

}  // namespace std

#endif
