// A plugin library with one creator, written against the binary interface of NVIDIA's IPluginCreatorV3One. It makes no
// plugin: what is tested is that the library is the approved one, loads, and brings its creator.
#include <cstdint>

struct Interface {
    char const* kind;
    int32_t major, minor;
};

struct Fields {
    int32_t count;
    void const* fields;
};

struct Versioned {
    virtual int32_t language() const noexcept { return 0; }
    virtual Interface interface() const noexcept = 0;
    virtual ~Versioned() noexcept = default;
};

struct Creator : Versioned {
    Fields none{0, nullptr};
    Interface interface() const noexcept override { return {"PLUGIN CREATOR_V3ONE", 1, 0}; }
    virtual void* create(char const*, void const*, int32_t) noexcept { return nullptr; }
    virtual Fields const* fields() noexcept { return &none; }
    virtual char const* name() const noexcept { return NAME; }
    virtual char const* version() const noexcept { return "1"; }
    virtual char const* space() const noexcept { return ""; }
};

static Creator creator;
static void* const all[1] = {static_cast<Versioned*>(&creator)};

extern "C" void* const* getCreators(int32_t& count) {
    count = 1;
    return all;
}

extern "C" void setLoggerFinder(void*) {}
