// In place of libstdc++'s locales, of which yaml-cpp's streams use the classic one, and of that the facets that read and write
// characters and numbers: libstdc++'s installs those of time, money, messages and collation, and all of wide characters, 300 KiB
// that nothing uses. What it defines elsewhere is declared in <locale> as private members, so this is written for the versions
// whose members are known.
#include <locale>

#if defined(__GLIBCXX__) && _GLIBCXX_RELEASE == 12

#include <new>

namespace std {
namespace {

template <typename T>
union Room {
  alignas(T) char bytes[sizeof(T)];
};

// num_get and num_put are in libstdc++ once for both of its ABIs of strings, and ask for what they know of numpunct by the older
// one's.
extern const locale::id g_old_numpunct_id asm("_ZNSt8numpunctIcE2idE");

constexpr size_t kFacets =
    _GLIBCXX_NUM_FACETS + _GLIBCXX_NUM_UNICODE_FACETS + (_GLIBCXX_USE_DUAL_ABI ? _GLIBCXX_NUM_CXX11_FACETS : 0) + 16;
// Never destroyed: streams may be used until the process ends.
const locale::facet* g_facets[kFacets];
const locale::facet* g_caches[kFacets];
char g_name[] = "C";
char* g_names[6 + _GLIBCXX_NUM_CATEGORIES] = {g_name};
Room<ctype<char>> g_ctype;
Room<codecvt<char, char, mbstate_t>> g_codecvt;
Room<numpunct<char>> g_numpunct;
Room<__numpunct_cache<char>> g_numpunct_cache;
Room<num_get<char>> g_num_get;
Room<num_put<char>> g_num_put;

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
  auto* const cache = new (&g_numpunct_cache) __numpunct_cache<char>(2);
  _M_init_facet_unchecked(new (&g_numpunct) numpunct<char>(cache, 1));
  _M_caches[numpunct<char>::id._M_id()] = cache;
  _M_caches[g_old_numpunct_id._M_id()] = cache;
  _M_init_facet_unchecked(new (&g_num_get) num_get<char>(1));
  _M_init_facet_unchecked(new (&g_num_put) num_put<char>(1));
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
